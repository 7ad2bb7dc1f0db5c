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

// A QP number encodes the port on which its QP can be called. InfiniBand programs exchange GID and
// QP number but no port, so each open device listens on one of Ports ports of the host, and the
// upper bits of its QP numbers name that port. This also tells the processes and devices of a host
// apart. The first QP takes the port, before it is known whether its program will use a connection
// manager.
const (
	Ports       = 1<<portBits - 1
	DefaultPort = 28672

	portBits  = 7
	indexBits = 24 - portBits
	noPort    = Ports // in QP numbers of a device without a port
	leastNum  = 2     // 0 and 1 are InfiniBand's special QPs
	mostQPs   = 1<<indexBits - leastNum
)

// portOf returns the port encoded in a QP number; ok is false if it encodes none.
func portOf(base uint16, num uint32) (port uint16, ok bool) {
	k := num >> indexBits & noPort
	return base + uint16(k), k != noPort
}

// RendezvousError reports that a device has no port on which peers could call QPs that are brought
// up manually.
type RendezvousError struct {
	First, Last uint16 // the ports that were tried
	Reason      error
}

// Error names the ports.
func (e *RendezvousError) Error() string {
	return fmt.Sprintf("ibcompat: none of the ports %d to %d can be had for the rendezvous: %v", e.First, e.Last,
		e.Reason)
}

// Unwrap returns the Reason.
func (e *RendezvousError) Unwrap() error { return e.Reason }

// rendezvous finds the QPs of an open device by their numbers: the QPs of this process are in qps,
// and peers call its listener. The listener is opened for the first QP, on every address of the
// device, and closed with the device. It also reserves the port: while it listens, no other program
// can listen there, on any address, and answer in its place (bind(2): SO_REUSEADDR does not allow a
// second listening socket).
type rendezvous struct {
	in   *verbs.Context
	base uint16

	opening sync.Once
	ln      *cm.Listener // nil if listening failed, see err
	port    uint32       // relative to base; noPort = none
	err     error
	serving sync.WaitGroup

	mu   sync.Mutex // a leaf; guards the following
	next uint32     // candidate for the index of the next QP
	qps  map[uint32]*qp
}

// Implementation constants.
const (
	callLimit  = 10 * time.Second // limit for an answer
	leastGap   = time.Millisecond // between two calls
	longestGap = 100 * time.Millisecond
)

func newRendezvous(in *verbs.Context, base uint16) *rendezvous {
	return &rendezvous{in: in, base: base, qps: map[uint32]*qp{}, next: rand.Uint32(), port: noPort}
}

// enroll assigns a QP its number.
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

// leave removes a QP.
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

// open listens on the first free port.
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

// close is called when no QPs are left.
func (r *rendezvous) close() error {
	err := r.ln.Close()
	r.serving.Wait()
	return err
}

// acceptPause is the pause after a failed accept.
const acceptPause = 10 * time.Millisecond

// serve answers calls. It never waits for a peer: calls of strangers are refused at once, and each
// QP answers at most two concurrently.
func (r *rendezvous) serve() {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		req, err := r.ln.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(acceptPause) // the system is out of descriptors
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
	_ = req.Reject(g.Append(nil)) // the caller may be gone
}

// called finds the QP that a request is for, or nil if the caller is not its peer. The request is
// not trusted: its number must be that of a waiting QP, its names and PSNs must match what this
// program set, and it must come from the peer's address.
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

// ipOf returns the address of a caller.
func ipOf(req *cm.Request) netip.Addr {
	a, ok := req.RemoteAddr().(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}
