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

	mu       sync.Mutex // guards the fields below
	events   []rawEvent
	accept   func(rawEvent) (taken bool, private []byte) // of a listener: reports whether it accepts a request
	groups   map[uintptr]membership                      // multicast groups, from joining until leaving
	lastJoin uintptr
	wake     chan struct{} // holds a token while there are events
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

// callError adds the name of the librdmacm function to an error of call, and the ID's device, if it
// has one.
func (e *endpoint) callError(call string, err error) error {
	if err == nil {
		return nil
	}
	return callError(call, e.where().device, err)
}

// callError returns for example "rdma_connect on siw0: cannot allocate memory (ENOMEM)".
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
// siw can block for long.
func (e *endpoint) destroy() {
	if e.free() {
		e.ch.end()
	}
}

// free is destroy without closing the channel. If it returns true, the caller must call end on the
// channel.
func (e *endpoint) free() (last bool) {
	e.guard.Lock()
	defer e.guard.Unlock()
	if e.dead {
		return false
	}
	e.dead = true
	e.ch.remove(e)
	for _, m := range e.memberships() { // librdmacm does not free them
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

// deliver queues an event.
func (e *endpoint) deliver(ev rawEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch ev.event {
	case EventMulticastJoin, EventMulticastError:
		select {
		case e.groups[ev.group].answer <- ev:
		default: // an error after the join: the program must leave the group
		}
		return
	case EventAddrChange:
		return // the connection continues, and bonding causes many of these
	}
	if !ev.event.known() {
		return // from a newer kernel; a connection never ends without a known event
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

// offer passes a request to the listener. If the listener does not accept it, offer returns the
// private data of the refusal.
func (e *endpoint) offer(ev rawEvent) (taken bool, private []byte) {
	e.mu.Lock()
	accept := e.accept
	e.mu.Unlock()
	if accept == nil {
		return false, nil
	}
	return accept(ev)
}

// take removes and returns the oldest event.
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

// next waits for an event. It returns ctx.Err() if ctx is done, and ErrClosed if stop is closed.
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
