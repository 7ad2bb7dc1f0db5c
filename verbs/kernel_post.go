// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// errBroken is the cause when the library does not tell how many requests of a list it took.
var errBroken = errors.New("the library failed and does not tell which requests it took")

// Bits of the wr_id that tracked devices get: the rest is the number in the queue's account, or in the SRQ's.
const (
	idRecv  = 1 << 63
	idSRQ   = 1 << 62
	idEmpty = 1 << 61 // no number follows: it is in no account
)

// sendQueue is where a list of sends is converted, and the account of what has been posted.
type sendQueue struct {
	account
	wrs    []flatSend
	sges   []SGE
	ext    []flatExt
	simple *[256]uint8 // see simpleOps
	gate   gate
	ud     bool // requests are datagrams
	bad    bool // the request that will fail is in the account
}

type recvQueue struct {
	account
	flat recvList
}

// account is what both queues of a QP have.
type account struct {
	direct  callLock   // guards the lists if the device's queue is the only account
	mu      sync.Mutex // guards the whole queue otherwise; after that of a CQ
	track   track
	flushed bool // the device has flushed all that it had
}

// begin makes room for a list.
func (s *sendQueue) begin(n int) {
	if cap(s.wrs) < n {
		s.wrs = make([]flatSend, max(n, 2*cap(s.wrs)))
	}
	s.wrs, s.sges, s.ext = s.wrs[:n], s.sges[:0], s.ext[:0]
}

// put converts a request, the ith of the list.
func (s *sendQueue) put(i int, w *SendWR) {
	s.sges = append(s.sges, w.SGL...)
	f := &s.wrs[i]
	flatten(f, w)
	if s.ud || w.Opcode > WRRDMARead {
		s.extend(w, f)
	}
}

// flatten converts what all requests have.
func flatten(f *flatSend, w *SendWR) {
	f.id, f.remoteAddr, f.rkey, f.imm = w.ID, w.RemoteAddr, w.RKey, w.Imm
	f.op, f.ext = flatOp(w.Opcode, w.Flags&^SendRelaxed, len(w.SGL)), 0
}

func flatOp(op WROpcode, flags SendFlags, sges int) uint32 {
	return uint32(op) | uint32(flags)<<flagsShift | uint32(sges)<<sgesShift
}

// What a flat request says.
const (
	fenceBit  = uint32(SendFence) << flagsShift
	inlineBit = uint32(SendInline) << flagsShift
)

func opcode(w *flatSend) WROpcode { return WROpcode(w.op & 0xff) }
func isRead(w *flatSend) bool     { return opcode(w) == WRRDMARead }
func isBind(w flatSend) bool      { return opcode(&w) == WRBindMW }
func isFenced(w *flatSend) bool   { return w.op&fenceBit != 0 }
func isInline(w *flatSend) bool   { return w.op&inlineBit != 0 }
func elements(w *flatSend) int    { return int(w.op >> sgesShift) }

// fill converts a list.
func (s *sendQueue) fill(wrs []SendWR) {
	s.begin(len(wrs))
	for i := range wrs {
		s.put(i, &wrs[i])
	}
}

// extend converts what few requests have.
func (s *sendQueue) extend(w *SendWR, f *flatSend) {
	var x flatExt
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.imm = w.InvalidateRKey
		f.rkey = f.imm // where libsiw looks for it; nobody else looks there
		return
	case WRAtomicFetchAndAdd:
		x.a = w.Add
	case WRAtomicCmpAndSwp:
		x.a, x.b = w.Compare, w.Swap
	case WRBindMW:
		f.imm = 0
		x.p = uint64(ownMW(w.Bind).c)
		x.q = uint64(ownMR(w.Bind).c)
		x.a, x.b = w.Bind.Addr, w.Bind.Length
		x.c, x.d = w.RKey, uint32(w.Bind.Access)
	default:
		x.p = uint64(ownAH(w.UD).c)
		x.c, x.d = w.UD.RemoteQPN, w.UD.RemoteQKey
	}
	s.ext = append(s.ext, x)
	f.ext = uint32(len(s.ext))
}

// PostSend hands a list over in one call.
func (q *kernelQP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if own, err := q.ownObjects(wrs); err != nil {
		n, failed := q.PostSend(wrs[:own])
		return n, cmp.Or(failed, err)
	}
	if !q.tracked {
		return q.postSendDirect(q.owner, wrs)
	}
	q.send.mu.Lock()
	// The device's own queue is longer than asked for, and its places become free in other ways. Before the state is looked
	// at, which can change while the queue is not locked.
	if q.send.track.requests()+len(wrs) > q.cap.MaxSendWR {
		q.relieveSends()
	}
	if st := q.qpState(); st < QPStateRTS {
		q.send.mu.Unlock()
		return 0, &StateError{State: st, Why: "sends can be posted from RTS on"}
	}
	return q.postTracked(wrs)
}

// PostRecv hands a list over in one call.
func (q *kernelQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if !q.tracked {
		return q.postRecvDirect(q.owner, wrs)
	}
	r := &q.recv
	r.mu.Lock()
	if r.track.requests()+len(wrs) > q.cap.MaxRecvWR { // as in PostSend
		r.mu.Unlock()
		q.recvCQ.relieve()
		r.mu.Lock()
	}
	switch st := q.qpState(); st {
	case QPStateReset:
		r.mu.Unlock()
		return 0, &StateError{State: st, Why: "receives can be posted from INIT on"}
	case QPStateErr:
		r.mu.Unlock()
		return q.recvHeld(wrs)
	}
	defer r.mu.Unlock()
	var full error
	if room := max(q.cap.MaxRecvWR-r.track.requests(), 0); len(wrs) > room {
		if wrs, full = wrs[:room], ErrQueueFull; room == 0 {
			return 0, full
		}
	}
	r.flat.fill(wrs, q.ctx.model.oneSGE)
	for i := range r.flat.wrs {
		r.flat.wrs[i].id = idRecv | r.track.add(wrs[i].ID, slotLent, true, true)
	}
	res := q.c.postRecv(r.flat.wrs, r.flat.sges, nil)
	if res == uint64(len(wrs)) {
		return len(wrs), full
	}
	n, err := q.postResult("ibv_post_recv", res)
	if err != nil {
		r.track.withdraw(len(wrs) - n)
	}
	return n, err
}

// postResult reads what a posting function returned for the QP.
func (q *kernelQP) postResult(call string, res uint64) (int, error) {
	n, err := postResult(call, res)
	if err != nil && !q.tracked && errors.Is(err, errBroken) {
		go q.fail(err)
	}
	return n, err
}

// postResult reads what a posting function of cgo_verbs.go returned.
func postResult(call string, res uint64) (int, error) {
	taken, rc := int(uint32(res)), uint32(res>>32)
	switch {
	case rc == 0:
		return taken, nil
	case rc&broken != 0:
		err := callError(call, int(rc&^broken))
		if err == nil {
			return taken, fmt.Errorf("%s: %w", call, errBroken)
		}
		return taken, fmt.Errorf("%w: %w", errBroken, err)
	case rc == uint32(syscall.ENOMEM):
		return taken, fmt.Errorf("%w: %w", ErrQueueFull, callError(call, int(rc)))
	}
	return taken, callError(call, int(rc))
}
