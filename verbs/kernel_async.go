// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"context"
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// WaitEvent takes the next event out of the queue.
func (c *kernelContext) WaitEvent(ctx context.Context) (AsyncEvent, error) {
	if err := ctx.Err(); err != nil {
		return AsyncEvent{}, err
	}
	return c.async.Wait(ctx)
}

// readEvents takes events from the device until the context is closed. The provider needs them
// itself, to learn of the end of QPs, so it does not wait for somebody to call WaitEvent.
func (c *kernelContext) readEvents() {
	for {
		var ev ibverbs.Event
		var failed error
		err := c.file.Wait(context.Background(), func() bool {
			for {
				// Go's poller tells of an event once: what was interrupted is done again at once.
				if ev, failed = c.c.Event(); failed != syscall.EINTR {
					return failed != syscall.EAGAIN
				}
			}
		})
		if err != nil {
			return
		}
		if failed != nil {
			// The device is gone: whatever waits must learn of it, and there will be no other
			// event.
			c.async.Post(AsyncEvent{Type: EventDeviceFatal, Err: callError("ibv_get_async_event", failed)})
			return
		}
		c.event(AsyncEvent{Type: EventType(ev.Type), Port: int(ev.Port)}, ev.Cookie)
	}
}

// event acts on an event and queues it.
func (c *kernelContext) event(ev AsyncEvent, cookie uint64) {
	if target, ok := byCookie(cookie).(asyncTarget); ok {
		target.event(&ev)
	} else if cookie != 0 {
		return // of an object that is gone
	}
	c.async.Post(ev)
}
