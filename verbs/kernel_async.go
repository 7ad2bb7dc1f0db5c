// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"context"
	"sync"
	"syscall"
)

// asyncLimit is how many events wait for WaitEvent; then the oldest are dropped.
const asyncLimit = 1024

// asyncQueue holds events until somebody asks for them.
type asyncQueue struct {
	mu     sync.Mutex // guards events
	events []AsyncEvent
	more   chan struct{} // holds a token while events may be there
	closed chan struct{}
}

func (q *asyncQueue) init() {
	q.more = make(chan struct{}, 1)
	q.closed = make(chan struct{})
}

func (q *asyncQueue) put(ev AsyncEvent) {
	q.mu.Lock()
	if len(q.events) == asyncLimit {
		q.events = q.events[1:]
	}
	q.events = append(q.events, ev)
	q.mu.Unlock()
	q.signal()
}

func (q *asyncQueue) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take returns the oldest event and passes the token on if there are more.
func (q *asyncQueue) take() (AsyncEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return AsyncEvent{}, false
	}
	ev := q.events[0]
	q.events[0] = AsyncEvent{}
	if q.events = q.events[1:]; len(q.events) > 0 {
		q.signal()
	}
	return ev, true
}

func (q *asyncQueue) close() { close(q.closed) }

// WaitEvent takes the next event out of the queue.
func (c *kernelContext) WaitEvent(ctx context.Context) (AsyncEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return AsyncEvent{}, err
		}
		select {
		case <-c.async.more:
			if ev, ok := c.async.take(); ok {
				return ev, nil
			}
		case <-ctx.Done():
			return AsyncEvent{}, ctx.Err()
		case <-c.async.closed:
			return AsyncEvent{}, ErrClosed
		}
	}
}

// readEvents takes events from the device until the context is closed. The provider needs them itself, to learn of the end
// of QPs, so it does not wait for somebody to call WaitEvent.
func (c *kernelContext) readEvents() {
	for {
		var ev AsyncEvent
		var cookie uint64
		var rc int
		err := c.file.Wait(context.Background(), func() bool {
			for {
				// Go's poller tells of an event once: what was interrupted is done again at once.
				if ev, cookie, rc = c.c.asyncEvent(); rc != int(syscall.EINTR) {
					return rc != int(syscall.EAGAIN)
				}
			}
		})
		if err != nil {
			return
		}
		if rc != 0 {
			// The device is gone: whatever waits must learn of it, and there will be no other event.
			c.async.put(AsyncEvent{Type: EventDeviceFatal, Err: callError("ibv_get_async_event", rc)})
			return
		}
		c.event(ev, cookie)
	}
}

// event acts on an event and queues it.
func (c *kernelContext) event(ev AsyncEvent, cookie uint64) {
	if target, ok := byCookie(cookie).(asyncTarget); ok {
		target.event(&ev)
	} else if cookie != 0 {
		return // of an object that is gone
	}
	c.async.put(ev)
}
