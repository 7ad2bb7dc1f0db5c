// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"sync"
	"syscall"
	"time"
)

// channel is the event channel shared by all kernel IDs of the process. It exists while there are
// IDs. One goroutine reads the events and passes them to their endpoints, which queue them. So no
// ID waits for another ID's events.
type channel struct {
	raw  rawChannel
	done chan struct{} // closed when the dispatcher returns

	mu   sync.Mutex
	refs int
	last uintptr // the newest key
	ends map[uintptr]*endpoint
}

var shared struct {
	sync.Mutex
	ch *channel
}

// acquireChannel returns the channel with a reference for the caller.
func acquireChannel() (*channel, error) {
	shared.Lock()
	defer shared.Unlock()
	if ch := shared.ch; ch != nil {
		ch.mu.Lock()
		ch.refs++
		ch.mu.Unlock()
		return ch, nil
	}
	raw, err := librdmacm.open()
	if err != nil {
		return nil, callError("rdma_create_event_channel", "", err)
	}
	ch := &channel{raw: raw, done: make(chan struct{}), refs: 1, ends: make(map[uintptr]*endpoint)}
	shared.ch = ch
	go ch.dispatch()
	return ch, nil
}

// release drops a reference and reports whether it was the last one; then end must be called.
func (ch *channel) release() (last bool) {
	shared.Lock()
	defer shared.Unlock()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.refs--
	if ch.refs > 0 {
		return false
	}
	shared.ch = nil
	return true
}

// end closes a channel without references.
func (ch *channel) end() {
	ch.raw.stop()
	<-ch.done
	ch.raw.close()
}

// dispatch reads events until the channel is stopped. It blocks only while waiting for events.
func (ch *channel) dispatch() {
	defer close(ch.done)
	for {
		var ev rawEvent
		var failure error
		err := ch.raw.wait(func() bool {
			ev, failure = ch.raw.next()
			return failure != syscall.EAGAIN
		})
		switch {
		case err != nil:
			return
		case failure == nil:
			ch.route(ev)
		default:
			// This event could not be read: memory is short, or its ID is being destroyed. Other
			// events may be pending.
			time.Sleep(time.Millisecond)
		}
	}
}

// route passes an event to its endpoint. A request gets its own endpoint; a request for a closed
// listener is refused.
func (ch *channel) route(ev rawEvent) {
	ch.mu.Lock()
	e := ch.ends[ev.key]
	if ev.event == EventConnectRequest {
		if e != nil {
			ch.refs++
			ev.end = ch.addLocked(ev.id)
		}
		ch.mu.Unlock()
		if e == nil {
			_ = ev.id.destroy()
		} else if taken, private := e.offer(ev); !taken {
			ev.end.refuse(private)
		}
		return
	}
	ch.mu.Unlock()
	if e != nil {
		e.deliver(ev)
	}
}

// addLocked creates an endpoint that owns a reference to the channel.
func (ch *channel) addLocked(raw rawID) *endpoint {
	ch.last++
	e := &endpoint{ch: ch, key: ch.last, raw: raw, wake: make(chan struct{}, 1)}
	ch.ends[e.key] = e
	if raw != nil {
		raw.setKey(e.key)
	}
	return e
}

// newEndpoint creates an ID.
func newEndpoint(ps PortSpace) (*endpoint, error) {
	ch, err := acquireChannel()
	if err != nil {
		return nil, err
	}
	ch.mu.Lock()
	e := ch.addLocked(nil)
	ch.mu.Unlock()
	// No event can arrive before the ID is used.
	if e.raw, err = ch.raw.create(e.key, ps); err != nil {
		ch.remove(e)
		if ch.release() {
			ch.end()
		}
		return nil, callError("rdma_create_id", "", err)
	}
	return e, nil
}

func (ch *channel) remove(e *endpoint) {
	ch.mu.Lock()
	delete(ch.ends, e.key)
	ch.mu.Unlock()
}
