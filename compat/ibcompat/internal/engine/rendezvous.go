// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// A QP number says where its QP can be called. InfiniBand programs tell each other GID and number, and no port. So an open device
// takes one of Ports ports of the host, and the upper bits of its QPs' numbers say which; processes and devices of a host are told
// apart by it too. The port is taken by the first QP, before it is known whether its program will use a connection manager.
const (
	Ports       = 1<<portBits - 1
	DefaultPort = 28672

	portBits  = 7
	indexBits = 24 - portBits
	noPort    = Ports // in numbers of a device that has none
	leastNum  = 2     // 0 and 1 are the special QPs of InfiniBand
	mostQPs   = 1<<indexBits - leastNum
)

// portOf returns the port that a QP number stands for; ok is false if it stands for none.
func portOf(base uint16, num uint32) (port uint16, ok bool) {
	k := num >> indexBits & noPort
	return base + uint16(k), k != noPort
}

// RendezvousError says that a device cannot wait for peers of QPs that are brought up by hand: it has no port of its own.
type RendezvousError struct {
	First, Last uint16 // the ports that it may have
	Addr        string // the address at which it was to listen, "" if none of the ports was free
	Reason      error
}

// Error names the ports.
func (e *RendezvousError) Error() string {
	if e.Addr != "" {
		return fmt.Sprintf("ibcompat: cannot wait for the peer at %s: %v", e.Addr, e.Reason)
	}
	return fmt.Sprintf("ibcompat: none of the ports %d to %d can be had for the rendezvous: %v", e.First, e.Last, e.Reason)
}

// Unwrap returns the Reason.
func (e *RendezvousError) Unwrap() error { return e.Reason }

// rendezvous is where the QPs of an open device are found by their numbers: those of this process in qps, and peers come to its
// listeners. A listener is opened when the first QP waits at its address, and closed with the device.
type rendezvous struct {
	in   *verbs.Context
	base uint16

	mu    sync.Mutex // a leaf; guards what follows
	tried bool
	place *reservation // nil = none, see err
	err   error
	next  uint32 // a candidate for the index of the next QP
	qps   map[uint32]*qp

	opening   sync.Mutex // guards what follows; taken after a qp's mu
	listeners map[netip.Addr]*cm.Listener
	serving   sync.WaitGroup
}

// Implementation constants.
const (
	mostCalls  = 64               // calls that a listener answers at a time
	callLimit  = 10 * time.Second // how long an answer may take
	longestGap = 100 * time.Millisecond
)

func newRendezvous(in *verbs.Context, base uint16) *rendezvous {
	return &rendezvous{in: in, base: base, qps: map[uint32]*qp{}, next: rand.Uint32(), listeners: map[netip.Addr]*cm.Listener{}}
}

// enroll gives a QP its number.
func (r *rendezvous) enroll(q *qp) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.tried {
		r.tried = true
		if r.place, r.err = reserve(r.base, Ports); r.err != nil {
			r.err = &RendezvousError{First: r.base, Last: r.base + Ports - 1, Reason: r.err}
		}
	}
	if len(r.qps) >= mostQPs {
		return 0, &verbs.LimitError{Name: "max_qp", Limit: mostQPs, Value: mostQPs + 1}
	}
	port := uint32(noPort)
	if r.place != nil {
		port = uint32(r.place.port - r.base)
	}
	for {
		num := port<<indexBits | leastNum + r.next%mostQPs
		r.next++
		if r.qps[num] == nil {
			r.qps[num] = q
			return num, nil
		}
	}
}

// leave forgets a QP.
func (r *rendezvous) leave(num uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.qps, num)
}

func (r *rendezvous) find(num uint32) *qp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.qps[num]
}

// usable returns the error of a device without a port.
func (r *rendezvous) usable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// listen sees to it that callers are heard at an address.
func (r *rendezvous) listen(at netip.Addr) error {
	r.opening.Lock()
	defer r.opening.Unlock()
	if r.listeners[at] != nil {
		return nil
	}
	address := netip.AddrPortFrom(at, r.place.port).String()
	err := r.place.listening()
	if err == nil {
		var ln *cm.Listener
		if ln, err = cm.Listen(context.Background(), address, cm.Config{Context: r.in, AFOnly: at.Is6()}); err == nil {
			r.listeners[at] = ln
			r.serving.Go(func() { r.serve(ln) })
			return nil
		}
	}
	return &RendezvousError{First: r.base, Last: r.base + Ports - 1, Addr: address, Reason: err}
}

// close is called when there are no QPs any more.
func (r *rendezvous) close() (err error) {
	r.opening.Lock()
	defer r.opening.Unlock()
	for _, ln := range r.listeners {
		err = errors.Join(err, ln.Close())
	}
	r.serving.Wait()
	if r.place != nil {
		err = errors.Join(err, r.place.close())
	}
	return err
}

// acceptPause is the time between two attempts to accept a call.
const acceptPause = 10 * time.Millisecond

// serve answers calls. While mostCalls are being answered, which takes callLimit at most, further ones wait in the listener, and more
// than that it refuses.
func (r *rendezvous) serve(ln *cm.Listener) {
	busy := make(chan struct{}, mostCalls)
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		req, err := ln.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // the system lacks descriptors
			continue
		}
		busy <- struct{}{}
		calls.Go(func() {
			r.answer(req)
			<-busy
		})
	}
}

// answer connects a caller with the QP that it names, or refuses it.
func (r *rendezvous) answer(req *cm.Request) {
	q, h, refusal := r.called(req)
	if refusal == 0 {
		refusal = q.claim(h)
	}
	if refusal != 0 {
		g := wire.Greeting{Flags: wire.FlagEngine | wire.FlagHand, Private: []byte{byte(refusal)}}
		_ = req.Reject(g.Append(nil)) // the caller may have gone
		return
	}
	q.meet(h, req)
}

// called finds the QP that a request is for. What the request says is not trusted: the number must be that of a QP that waits, the
// caller that of which the program has told it, and the address that of the caller.
func (r *rendezvous) called(req *cm.Request) (*qp, *hand, wire.Refusal) {
	g, err := wire.ParseGreeting(req.PrivateData())
	if err != nil || g.Flags&wire.FlagHand == 0 {
		return nil, nil, wire.Malformed
	}
	call, err := wire.ParseCall(g.Private)
	if err != nil {
		return nil, nil, wire.Malformed
	}
	q := r.find(call.To.QPN)
	if q == nil {
		return nil, nil, wire.NoQP
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.hand
	switch {
	case h == nil:
		return nil, nil, wire.NotReady
	case h.call != call.Back() || ipOf(req) != h.to.IP:
		return nil, nil, wire.OtherPeer
	}
	return q, h, 0
}

// ipOf is the address of a caller.
func ipOf(req *cm.Request) netip.Addr {
	a, ok := req.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}
