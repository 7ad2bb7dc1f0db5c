// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "context"

// waiting is the state of a watch's waiter. A watch never has more than one waiter.
type waiting struct {
	ch    *channel
	ctx   context.Context
	f     func() bool // look, and
	wake  func()      // nudge: both method values are created once
	looks int         // calls of look during this wait
	turn  turn

	// Consecutive waits usually have the same context and share one registration for its end.
	done <-chan struct{}
	stop func() (stopped bool)
}

// follow arranges for wake to be called when ctx is done.
func (o *waiting) follow(ctx context.Context, wake func()) {
	done := ctx.Done()
	if done == nil || done == o.done {
		return
	}
	o.unfollow()
	o.done, o.stop = done, context.AfterFunc(ctx, wake)
}

// unfollow cancels what follow arranged.
func (o *waiting) unfollow() {
	if o.stop != nil {
		o.stop()
		o.done, o.stop = nil, nil
	}
}

// keep receives until there is an event, ctx is done, the channel is closed or the watch ends. The
// caller has entered w; keep leaves it. slept reports whether other goroutines could run in the
// meantime.
func (ch *channel) keep(ctx context.Context, w *watch) (slept bool) {
	defer w.leave(ch)
	o := &w.out
	o.follow(ctx, o.wake)
	o.ch, o.ctx, o.looks = ch, ctx, 0
	_ = w.src.wait(o.f) // an error means that the watch has ended
	ch.looking.Store(nil)
	o.ch, o.ctx = nil, nil
	return o.looks > 1 // the first call of look is immediate
}

// look receives for the waiter. It reports whether the waiter has a reason not to sleep.
func (w *watch) look() bool {
	o := &w.out
	o.looks++
	o.ch.looking.Store(nil)
	defer o.turn.end()
	for more := true; more; {
		var a arrivals
		if a, more = w.src.take(); a.asked > 0 && w.late.Load() {
			w.distrust(a.asked)
		} else {
			w.arrived(a.conns)
		}
		if !a.rest && w.late.Load() {
			w.late.Store(false)
		}
		if w.called() {
			return true
		}
		o.turn.spend(a.bytes, w.src.yielder())
	}
	// An event from here on wakes the waiter; called detects an earlier one.
	o.ch.looking.Store(w)
	return w.called()
}

// called reports whether the waiter must stop keeping the watch.
func (w *watch) called() bool {
	return w.over.Load() || w.out.ctx.Err() != nil || w.out.ch.called()
}

// nudge makes the waiter call look.
func (w *watch) nudge() { w.src.wake() }

// called reports whether Wait has a reason not to sleep.
func (ch *channel) called() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.shut || len(ch.queue) > 0
}

// soleSleeperCalled reports whether at most one goroutine is asleep in Wait and has a reason to
// return.
func (ch *channel) soleSleeperCalled() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.sleepers <= 1 && len(ch.queue) > 0
}

// crowded reports whether more than one goroutine is asleep in Wait.
func (ch *channel) crowded() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.sleepers > 1
}

// wake makes the goroutine in keep call look.
func (ch *channel) wake() {
	if w := ch.looking.Load(); w != nil {
		w.src.wake()
	}
}
