// SPDX-License-Identifier: BSD-3-Clause

package siw

import "context"

// waiting is what the waiter of a watch works with. There is one at a time.
type waiting struct {
	ch   *channel
	ctx  context.Context
	f    func() bool // look, made once
	turn turn

	// Waits of the same context, which are most, share what wakes them when it is done.
	done <-chan struct{}
	stop func() (stopped bool)
}

// follow has wake called when ctx is done.
func (o *waiting) follow(ctx context.Context, wake func()) {
	done := ctx.Done()
	if done == nil || done == o.done {
		return
	}
	o.unfollow()
	o.done, o.stop = done, context.AfterFunc(ctx, wake)
}

// unfollow ends what follow began.
func (o *waiting) unfollow() {
	if o.stop != nil {
		o.stop()
		o.done, o.stop = nil, nil
	}
}

// keep has the caller, which has entered w, receive until there is an event, ctx is done, or one of both is over. The caller does
// not keep the watch any more when it returns.
func (ch *channel) keep(ctx context.Context, w *watch) {
	defer w.leave(ch)
	o := &w.out
	o.follow(ctx, w.nudge)
	o.ch, o.ctx = ch, ctx
	_ = w.src.wait(o.f) // an error is the end of the watch
	ch.looking.Store(nil)
	o.ch, o.ctx = nil, nil
}

// look receives. It reports whether there is a reason not to sleep.
func (w *watch) look() bool {
	o := &w.out
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
	// What happens from here on wakes the sleeper, what has happened before is seen now.
	o.ch.looking.Store(w)
	return w.called()
}

// called reports whether the waiter has something else to do than to keep the watch.
func (w *watch) called() bool {
	return w.over.Load() || w.out.ctx.Err() != nil || w.out.ch.called()
}

// nudge has the waiter look.
func (w *watch) nudge() { w.src.wake() }

// called reports whether Wait has a reason not to sleep.
func (ch *channel) called() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.shut || len(ch.queue) > 0
}

// soleSleeperCalled reports whether the only goroutine that sleeps in Wait has a reason to go.
func (ch *channel) soleSleeperCalled() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.sleepers <= 1 && (ch.shut || len(ch.queue) > 0)
}

// crowded reports whether more goroutines than one sleep in Wait.
func (ch *channel) crowded() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.sleepers > 1
}

// wake has the goroutine in keep look.
func (ch *channel) wake() {
	if w := ch.looking.Load(); w != nil {
		w.src.wake()
	}
}
