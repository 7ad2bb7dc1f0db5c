// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/verbs"
)

// A QP number says where its QP can be called. InfiniBand programs tell each other GID and number,
// and no port. So an open device takes one of Ports ports of the host, and the upper bits of its
// QPs' numbers say which; processes and devices of a host are told apart by it too. The port is
// taken by the first QP, before it is known whether its program will use a connection manager.
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

// RendezvousError says that a device cannot wait for peers of QPs that are brought up by hand: it
// has no port of its own.
type RendezvousError struct {
	First, Last uint16 // the ports that it may have
	Reason      error
}

// Error names the ports.
func (e *RendezvousError) Error() string {
	return fmt.Sprintf("ibcompat: none of the ports %d to %d can be had for the rendezvous: %v", e.First, e.Last,
		e.Reason)
}

// Unwrap returns the Reason.
func (e *RendezvousError) Unwrap() error { return e.Reason }

// rendezvous is where the QPs of an open device are found by their numbers: those of this process
// in qps, and peers come to its listener. That is opened for the first QP, at every address of the
// device, and closed with the device. It is what keeps the port: while it listens, no other program
// can listen there, at no address, and answer in its place (bind(2): of two sockets with
// SO_REUSEADDR none may listen).
type rendezvous struct {
	in   *verbs.Context
	base uint16

	opening sync.Once
	ln      *cm.Listener // nil = none, see err
	port    uint32       // its port, counted from base; noPort = none
	err     error
	serving sync.WaitGroup

	mu   sync.Mutex // a leaf; guards what follows
	next uint32     // a candidate for the index of the next QP
	qps  map[uint32]*qp
}

// Implementation constants.
const (
	callLimit  = 10 * time.Second // how long an answer may take
	leastGap   = time.Millisecond // between two calls,
	longestGap = 100 * time.Millisecond
)

func newRendezvous(in *verbs.Context, base uint16) *rendezvous {
	return &rendezvous{in: in, base: base, qps: map[uint32]*qp{}, next: rand.Uint32(), port: noPort}
}

// enroll gives a QP its number.
func (r *rendezvous) enroll(q *qp) (uint32, error) {
	r.opening.Do(r.open)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.qps) >= mostQPs {
		return 0, &verbs.LimitError{Name: "max_qp", Limit: mostQPs, Value: mostQPs + 1}
	}
	for {
		num := r.port<<indexBits | leastNum + r.next%mostQPs
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

// open takes the first free port.
func (r *rendezvous) open() {
	_, r.err = hostOf(r.in)
	for i := uint32(0); i < Ports && r.ln == nil &&
		(i == 0 && r.err == nil || errors.Is(r.err, syscall.EADDRINUSE)); i++ {
		r.port = i
		r.ln, r.err = cm.Listen(context.Background(), fmt.Sprintf(":%d", uint32(r.base)+i), cm.Config{Context: r.in})
	}
	if r.err != nil {
		r.port, r.err = noPort, &RendezvousError{First: r.base, Last: r.base + Ports - 1, Reason: r.err}
		return
	}
	r.serving.Go(r.serve)
}

// close is called when there are no QPs any more.
func (r *rendezvous) close() error {
	err := r.ln.Close()
	r.serving.Wait()
	return err
}

// acceptPause is the time between two attempts to accept a call.
const acceptPause = 10 * time.Millisecond

// serve answers calls. Nothing in it waits for a peer: those of strangers are refused at once, and
// each QP answers two at most.
func (r *rendezvous) serve() {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		req, err := r.ln.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // the system lacks descriptors
			continue
		}
		q, h := r.called(req)
		if q == nil {
			refuseCall(req, wire.NoQP)
			continue
		}
		calls.Go(func() {
			t, refusal := q.claim(h)
			if t == nil {
				refuseCall(req, refusal)
				return
			}
			q.meet(h, t, req)
		})
	}
}

func refuseCall(req *cm.Request, why wire.Refusal) {
	g := wire.Greeting{Flags: wire.FlagEngine | wire.FlagHand, Private: []byte{byte(why)}}
	_ = req.Reject(g.Append(nil)) // the caller may have gone
}

// called finds the QP that a request is for; nil if the caller is not its peer. What the request
// says is not trusted: the number must be that of a QP that waits, caller and PSNs those of which
// the program has told it, and the address that of the caller.
func (r *rendezvous) called(req *cm.Request) (*qp, *hand) {
	g, err := wire.ParseGreeting(req.PrivateData())
	if err != nil || g.Flags&wire.FlagHand == 0 {
		return nil, nil
	}
	call, err := wire.ParseCall(g.Private)
	if err != nil {
		return nil, nil
	}
	q := r.find(call.To.QPN)
	if q == nil {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.hand
	if h == nil || h.dials || h.self() || !h.call.Meets(&call) || ipOf(req) != h.to.IP {
		return nil, nil
	}
	return q, h
}

// ipOf is the address of a caller.
func ipOf(req *cm.Request) netip.Addr {
	a, ok := req.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}
