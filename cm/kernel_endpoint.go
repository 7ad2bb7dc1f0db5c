// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/errname"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// endpoint is an ID of librdmacm with its events. All methods may be called concurrently; after
// destroy, methods that need the ID return ErrClosed.
type endpoint struct {
	ch  *channel
	key uintptr

	guard sync.RWMutex // held for reading while raw is used
	raw   rawID
	dead  bool

	mu       sync.Mutex // guards what follows
	events   []rawEvent
	accept   func(rawEvent) (taken bool, private []byte) // of a listener: reports whether it takes a request
	groups   map[uintptr]membership                      // multicast groups, from joining until leaving
	lastJoin uintptr
	wake     chan struct{} // holds a token when there are events
}

// call runs a call of librdmacm on the ID.
func (e *endpoint) call(f func(rawID) error) error {
	e.guard.RLock()
	defer e.guard.RUnlock()
	if e.dead {
		return verbs.ErrClosed
	}
	return f(e.raw)
}

// callError is an error of call, with the name of the call and the device of the ID, if it has one.
func (e *endpoint) callError(call string, err error) error {
	if err == nil {
		return nil
	}
	return callError(call, e.where().device, err)
}

// callError makes for example "rdma_connect on siw0: cannot allocate memory (ENOMEM)".
func callError(call, device string, err error) error {
	if device != "" {
		call += " on " + device
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		if name := errname.Of(no); name != "" {
			return fmt.Errorf("%s: %w (%s)", call, err, name)
		}
	}
	return fmt.Errorf("%s: %w", call, err)
}

// destroy frees the ID and drops its events. It waits for calls in progress; a connect of kernel
// siw can take long.
func (e *endpoint) destroy() {
	if e.free() {
		e.ch.end()
	}
}

// free does what destroy does, but does not end the channel. If it reports true, the channel must
// be ended.
func (e *endpoint) free() (last bool) {
	e.guard.Lock()
	defer e.guard.Unlock()
	if e.dead {
		return false
	}
	e.dead = true
	e.ch.remove(e)
	for _, m := range e.memberships() { // librdmacm would not free them
		_ = e.raw.leave(m.at)
	}
	_ = e.raw.destroy()
	return e.ch.release()
}

// refuse rejects a request and frees it. The dispatcher calls it.
func (e *endpoint) refuse(private []byte) {
	_ = e.call(func(id rawID) error { return id.reject(private) })
	if e.free() {
		go e.ch.end() // end waits for the dispatcher, which calls this
	}
}

// deliver keeps an event.
func (e *endpoint) deliver(ev rawEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.event {
	case EventMulticastJoin, EventMulticastError:
		select {
		case e.groups[ev.group].answer <- ev:
		default: // an error after the join: leaving the group is up to the program
		}
		return
	case EventAddrChange:
		return // the connection continues, and bonding causes many of these events
	}
	if !ev.event.known() {
		return // an event of a newer kernel: for every end there is also a known event
	}
	e.events = append(e.events, ev)
	queue.Signal(e.wake)
}

// setAccept makes the endpoint a listener.
func (e *endpoint) setAccept(accept func(rawEvent) (taken bool, private []byte)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.accept = accept
}

// offer passes a request to the listener. If that does not take it, offer returns the private data
// of the refusal.
func (e *endpoint) offer(ev rawEvent) (taken bool, private []byte) {
	e.mu.Lock()
	accept := e.accept
	e.mu.Unlock()
	if accept == nil {
		return false, nil
	}
	return accept(ev)
}

// take returns the oldest event.
func (e *endpoint) take() (rawEvent, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) == 0 {
		return rawEvent{}, false
	}
	ev := e.events[0]
	e.events = e.events[1:]
	return ev, true
}

// next waits for an event. It ends with ctx.Err(), and with ErrClosed when stop is closed.
func (e *endpoint) next(ctx context.Context, stop <-chan struct{}) (rawEvent, error) {
	for {
		if ev, ok := e.take(); ok {
			return ev, nil
		}
		select {
		case <-e.wake:
		case <-stop:
			return rawEvent{}, verbs.ErrClosed
		case <-ctx.Done():
			return rawEvent{}, ctx.Err()
		}
	}
}

// where returns the addresses and the device.
func (e *endpoint) where() (p rawPlace) {
	_ = e.call(func(id rawID) error { p = id.where(); return nil })
	return p
}

// ends returns the addresses of a connection.
func (p rawPlace) ends(ps PortSpace) (local, remote kernelAddr) {
	return kernelAddr{unmapped(p.local), ps}, kernelAddr{unmapped(p.remote), ps}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
