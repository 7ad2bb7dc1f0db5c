// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// lookingOut is what a goroutine in channel.lookOut works with. There is one at a time.
type lookingOut struct {
	conn *conn
	ctx  context.Context
	f    func() bool // look, made once

	// Waits of the same context, which are most, share what wakes them when it is done.
	done  <-chan struct{}
	watch func() (stopped bool)
}

// follow has wake called when ctx is done.
func (o *lookingOut) follow(ctx context.Context, wake func()) {
	done := ctx.Done()
	if done == nil || done == o.done {
		return
	}
	o.release()
	o.done, o.watch = done, context.AfterFunc(ctx, wake)
}

// release ends what follow began.
func (o *lookingOut) release() {
	if o.watch != nil {
		o.watch()
		o.done, o.watch = nil, nil
	}
}

// lookOut is Wait for the lookout of n, the only connection of the only CQ whose events come here: the goroutine receives
// until there is an event, and takes it. It is not the lookout any more when it returns.
func (ch *channel) lookOut(ctx context.Context, n *conn) error {
	defer n.leaveLookout()
	ch.mu.Lock()
	if ch.shut {
		ch.mu.Unlock()
		return verbs.ErrClosed
	}
	ch.waiters.Add(1)
	defer ch.waiters.Done()
	ch.mu.Unlock()

	o := &ch.out
	o.follow(ctx, ch.wake)
	o.conn, o.ctx = n, ctx
	err := n.s.waitReadable(o.f)
	ch.looking.Store(nil)
	o.conn, o.ctx = nil, nil
	if err != nil {
		n.broken(err)
	}

	ch.mu.Lock()
	defer ch.mu.Unlock()
	for _, q := range ch.queue {
		q.queued = false
	}
	ch.queue = ch.queue[:0]
	if ch.shut {
		return verbs.ErrClosed
	}
	return ctx.Err()
}

// look receives. It reports whether there is a reason not to sleep.
func (ch *channel) look() bool {
	ch.looking.Store(nil)
	for more := true; more; {
		more = ch.out.conn.receive()
		if ch.called() {
			return true
		}
	}
	// What happens from here on wakes the sleeper, what has happened before is seen now.
	ch.looking.Store(ch.out.conn)
	return ch.called()
}

// called reports whether there is something else to do than to look out.
func (ch *channel) called() bool {
	if ch.out.conn.dead.Load() || ch.out.ctx.Err() != nil {
		return true
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.shut || len(ch.queue) > 0
}

// wake has the goroutine in lookOut look.
func (ch *channel) wake() {
	if n := ch.looking.Load(); n != nil {
		n.lookout.stream.wake()
	}
}
