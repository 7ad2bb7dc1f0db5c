// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #cgo noescape gv_post_send
// #cgo nocallback gv_post_send
// #cgo noescape gv_post_recv
// #cgo nocallback gv_post_recv
// #include "cgo_verbs.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// errBroken is the cause when the library does not tell how many requests of a list it took.
var errBroken = errors.New("the library failed and does not tell which requests it took")

// An SGE has the layout of struct ibv_sge.
var (
	_ [0]struct{} = [unsafe.Sizeof(SGE{}) - C.sizeof_struct_ibv_sge]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(SGE{}.LKey) - unsafe.Offsetof(C.struct_ibv_sge{}.lkey)]struct{}{}
)

// Bits of the wr_id that tracked devices get: the rest is the number in the queue's account, or in the SRQ's.
const (
	idRecv = 1 << 63
	idSRQ  = 1 << 62
)

// sendQueue is where a list of sends is converted, and the account of what has been posted.
type sendQueue struct {
	mu      sync.Mutex // guards what follows; after that of a CQ
	wrs     []C.struct_gv_wr
	sges    []SGE
	ext     []C.struct_gv_ext
	track   track
	simple  *[256]uint8 // see simpleOps
	bad     bool        // the request that will fail is in the account
	flushed bool        // the device has flushed all that it had
}

type recvQueue struct {
	mu      sync.Mutex // guards what follows; after that of a CQ
	flat    recvList
	track   track
	flushed bool
}

// begin makes room for a list.
func (s *sendQueue) begin(n int) {
	if cap(s.wrs) < n {
		s.wrs = make([]C.struct_gv_wr, max(n, 2*cap(s.wrs)))
	}
	s.wrs, s.sges, s.ext = s.wrs[:n], s.sges[:0], s.ext[:0]
}

// put converts a request, the ith of the list.
func (s *sendQueue) put(i int, w *SendWR) {
	s.sges = append(s.sges, w.SGL...)
	f := &s.wrs[i]
	f.id, f.remote_addr, f.rkey, f.imm = C.uint64_t(w.ID), C.uint64_t(w.RemoteAddr), C.uint32_t(w.RKey), C.uint32_t(w.Imm)
	f.op, f.ext = flatOp(w.Opcode, w.Flags, len(w.SGL)), 0
	if w.UD != nil || w.Opcode > WRRDMARead {
		s.extend(w, f)
	}
}

func flatOp(op WROpcode, flags SendFlags, sges int) C.uint32_t {
	return C.uint32_t(op) | C.uint32_t(flags)<<C.GV_FLAGS_SHIFT | C.uint32_t(sges)<<C.GV_SGES_SHIFT
}

// fill converts a list.
func (s *sendQueue) fill(wrs []SendWR) {
	s.begin(len(wrs))
	for i := range wrs {
		s.put(i, &wrs[i])
	}
}

// extend converts what few requests have.
func (s *sendQueue) extend(w *SendWR, f *C.struct_gv_wr) {
	var x C.struct_gv_ext
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.imm = C.uint32_t(w.InvalidateRKey)
		f.rkey = f.imm // where libsiw looks for it; nobody else looks there
		return
	case WRAtomicFetchAndAdd:
		x.a = C.uint64_t(w.Add)
	case WRAtomicCmpAndSwp:
		x.a, x.b = C.uint64_t(w.Compare), C.uint64_t(w.Swap)
	case WRBindMW:
		f.imm = 0
		x.p = C.uint64_t(uintptr(unsafe.Pointer(w.Bind.MW.p.(*cgoMW).c)))
		x.q = C.uint64_t(uintptr(unsafe.Pointer(w.Bind.MR.p.(*cgoMR).c)))
		x.a, x.b = C.uint64_t(w.Bind.Addr), C.uint64_t(w.Bind.Length)
		x.c, x.d = C.uint32_t(w.RKey), C.uint32_t(w.Bind.Access)
	default:
		if w.UD == nil || w.UD.AH == nil {
			return
		}
		x.p = C.uint64_t(uintptr(unsafe.Pointer(w.UD.AH.p.(*cgoAH).c)))
		x.c, x.d = C.uint32_t(w.UD.RemoteQPN), C.uint32_t(w.UD.RemoteQKey)
	}
	s.ext = append(s.ext, x)
	f.ext = C.uint32_t(len(s.ext))
}

// post hands the flat lists over in one call.
func (s *sendQueue) post(qp C.uintptr_t) uint64 {
	return uint64(C.gv_post_send(qp, unsafe.SliceData(s.wrs), (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(s.sges))), unsafe.SliceData(s.ext), C.int(len(s.wrs))))
}

// simpleOps returns for each opcode the flags of requests of one element that need no other check: of such a list nothing
// but the flags is looked at. 0 = there are none.
func simpleOps(q *QP) (t [256]uint8) {
	for _, op := range []WROpcode{WRSend, WRSendWithImm, WRRDMAWrite, WRRDMAWriteWithImm, WRRDMARead} {
		if q.typ == QPTypeUD || !q.ops.Has(opOf[op]) || op == WRRDMARead && q.maxRd < 1 {
			continue
		}
		t[op] = uint8(SendFence | SendSignaled | SendSolicited)
	}
	return t
}

// canPostDirect reports whether the device's queue is the only account.
func (q *cgoQP) canPostDirect() bool { return !q.tracked }

// postSendDirect checks and converts a list in one pass, and hands it over in one call.
func (q *cgoQP) postSendDirect(h *QP, wrs []SendWR) (int, error) {
	s := &q.send
	s.mu.Lock()
	if h.node.Closed() {
		s.mu.Unlock()
		return 0, ErrClosed
	}
	if s.simple == nil {
		t := simpleOps(h)
		s.simple = &t
	}
	s.begin(len(wrs))
	if cap(s.sges) < len(wrs) {
		s.sges = make([]SGE, 0, len(wrs))
	}
	var refused error
	good := len(s.wrs)
	flat, simple, sges, bound := s.wrs[:len(wrs)], s.simple, s.sges[:cap(s.sges)], false
	k := 0
	for i := range wrs {
		w := &wrs[i]
		if fl := simple[w.Opcode]; len(w.SGL) == 1 && fl != 0 && uint8(w.Flags)&^fl == 0 && k < len(sges) {
			sges[k] = w.SGL[0]
			k++
			f := &flat[i]
			f.id, f.remote_addr, f.rkey, f.imm = C.uint64_t(w.ID), C.uint64_t(w.RemoteAddr), C.uint32_t(w.RKey), C.uint32_t(w.Imm)
			f.op, f.ext = C.uint32_t(w.Opcode)|C.uint32_t(w.Flags)<<C.GV_FLAGS_SHIFT|1<<C.GV_SGES_SHIFT, 0
			continue
		}
		if refused = h.checkSend(w); refused != nil {
			good = i
			break
		}
		s.sges = sges[:k]
		s.put(i, w)
		k, sges = len(s.sges), s.sges[:cap(s.sges)]
		bound = bound || w.Opcode == WRBindMW
	}
	if good == 0 {
		s.mu.Unlock()
		return 0, refused
	}
	if st := q.qpState(); st < QPStateRTS {
		s.mu.Unlock()
		return 0, &StateError{State: st, Why: "sends can be posted from RTS on"}
	}
	s.wrs = s.wrs[:good]
	res := uint64(C.gv_post_send(q.handle, unsafe.SliceData(s.wrs), (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(sges))),
		unsafe.SliceData(s.ext), C.int(good)))
	if bound {
		rekey(wrs[:uint32(res)])
	}
	s.mu.Unlock()
	if res == uint64(len(wrs)) {
		return len(wrs), nil
	}
	n, err := q.postResult("ibv_post_send", res)
	if err == nil {
		err = refused
	}
	return n, err
}

// rekey gives windows the keys of binds that have been posted.
func rekey(wrs []SendWR) {
	for i := range wrs {
		if b := wrs[i].Bind; b != nil && wrs[i].Opcode == WRBindMW {
			b.MW.rkey.Store(wrs[i].RKey)
		}
	}
}

// postRecvDirect is postSendDirect for receives.
func (q *cgoQP) postRecvDirect(h *QP, wrs []RecvWR) (int, error) {
	r := &q.recv
	r.mu.Lock()
	if h.node.Closed() {
		r.mu.Unlock()
		return 0, ErrClosed
	}
	good := len(wrs)
	var refused error
	for i := range wrs {
		if len(wrs[i].SGL) > q.cap.MaxRecvSGE {
			good, refused = i, limit("max_recv_sge", len(wrs[i].SGL), q.cap.MaxRecvSGE)
			break
		}
	}
	if good == 0 {
		r.mu.Unlock()
		return 0, refused
	}
	if st := q.qpState(); st == QPStateReset {
		r.mu.Unlock()
		return 0, &StateError{State: st, Why: "receives can be posted from INIT on"}
	}
	r.flat.fill(wrs[:good], false)
	res := uint64(C.gv_post_recv(q.handle, unsafe.SliceData(r.flat.wrs), r.flat.sgePointer(), C.int(good)))
	r.mu.Unlock()
	if res == uint64(len(wrs)) {
		return len(wrs), nil
	}
	n, err := q.postResult("ibv_post_recv", res)
	if err == nil {
		err = refused
	}
	return n, err
}

// PostSend hands a list over in one call.
func (q *cgoQP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s := &q.send
	s.mu.Lock()
	if st := q.qpState(); st < QPStateRTS {
		s.mu.Unlock()
		return 0, &StateError{State: st, Why: "sends can be posted from RTS on"}
	}
	if q.tracked {
		return q.postTracked(wrs)
	}
	s.fill(wrs)
	res := s.post(q.handle)
	s.mu.Unlock()
	if res == uint64(len(wrs)) {
		return len(wrs), nil
	}
	return q.postResult("ibv_post_send", res)
}

// postTracked is PostSend with an account. It unlocks the queue.
func (q *cgoQP) postTracked(wrs []SendWR) (int, error) {
	s := &q.send
	if q.qpState() == QPStateErr || s.track.poisoned {
		s.mu.Unlock()
		return q.postHeld(wrs)
	}
	defer s.mu.Unlock()
	// The device's own queue is longer than asked for, and its places become free in other ways.
	if s.track.lent+len(wrs) > q.cap.MaxSendWR {
		s.mu.Unlock()
		q.sendCQ.relieve()
		s.mu.Lock()
	}
	var full error
	if room := max(q.cap.MaxSendWR-s.track.lent, 0); len(wrs) > room {
		if wrs, full = wrs[:room], ErrQueueFull; room == 0 {
			return 0, full
		}
	}
	good := len(wrs)
	m := &q.ctx.model
	if q.ord.Load() == 0 {
		// The device's queue would stop for good.
		for i := range wrs {
			if needsORD(wrs[i].Opcode) {
				good = i
				break
			}
		}
	}
	if good > 0 {
		s.fill(wrs[:good])
		s.adapt(m)
		for i := range s.wrs {
			s.wrs[i].id = C.uint64_t(q.lend(&wrs[i]))
			s.wrs[i].op |= C.IBV_SEND_SIGNALED << C.GV_FLAGS_SHIFT
		}
		res := s.post(q.handle)
		if n, err := q.postResult("ibv_post_send", res); err != nil {
			if errors.Is(err, errBroken) {
				// They are in the device's queue and may be executed or not. Those that are not are flushed.
				go q.fail(err)
				n = good
			} else {
				s.track.withdraw(good - n)
				return n, err
			}
		}
		if q.sendCQ.hidden.Load() > hiddenSlack/2 {
			s.mu.Unlock()
			q.sendCQ.relieve()
			s.mu.Lock()
		}
		q.sendCQ.watch(s.track.lent)
	}
	if good < len(wrs) {
		s.track.poisoned = true
		s.mu.Unlock()
		n, err := q.postHeld(wrs[good:])
		s.mu.Lock()
		if err != nil {
			return good + n, err
		}
	}
	return len(wrs), full
}

// lend enters a request that the device gets.
func (q *cgoQP) lend(w *SendWR) uint64 {
	return q.send.track.add(w.ID, slotLent, q.sigAll || w.Flags&SendSignaled != 0, true)
}

func isEmpty(s SGE) bool { return s.Length == 0 }

// adapt changes what the device would misunderstand.
func (s *sendQueue) adapt(m *model) {
	if !m.oneSGE && !m.noFence {
		return
	}
	empty, at := 0, 0
	for i := range s.wrs {
		w := &s.wrs[i]
		n := int(w.op >> C.GV_SGES_SHIFT)
		if w.op&0xff == C.uint32_t(WRRDMARead) {
			if m.noFence {
				w.op &^= C.IBV_SEND_FENCE << C.GV_FLAGS_SHIFT
			}
			if m.oneSGE && n == 0 {
				empty++
			}
		}
		if m.oneSGE && n > 1 && slices.ContainsFunc(s.sges[at:at+n], isEmpty) {
			empty++
		}
		at += n
	}
	if empty == 0 {
		return
	}
	// Rare: give each Read without elements one of length 0, and take those of length 0 out of the others, which have the
	// kernel's siw use a region that it has not looked up (siw_tx_hdt).
	sges := make([]SGE, 0, len(s.sges)+empty)
	at = 0
	for i := range s.wrs {
		w := &s.wrs[i]
		n := int(w.op >> C.GV_SGES_SHIFT)
		if own := s.sges[at : at+n]; n > 1 {
			kept := slices.DeleteFunc(slices.Clone(own), isEmpty)
			sges = append(sges, kept...)
			w.op -= C.uint32_t(n-len(kept)) << C.GV_SGES_SHIFT
		} else {
			sges = append(sges, own...)
		}
		at += n
		if n == 0 && w.op&0xff == C.uint32_t(WRRDMARead) {
			sges = append(sges, SGE{})
			w.op |= 1 << C.GV_SGES_SHIFT
		}
	}
	s.sges = sges
}

// postHeld takes requests that the device does not get: of a QP in the error state, to be flushed; or, in a queue that is
// poisoned, first the request that will fail.
func (q *cgoQP) postHeld(wrs []SendWR) (int, error) {
	cq, s := q.sendCQ, &q.send
	cq.mu.Lock()
	defer cq.mu.Unlock()
	// What was before may have ended. A failure of the library's is for the next Poll.
	_ = cq.pump(cq.soft.len() + pumpBatch)
	s.mu.Lock()
	defer s.mu.Unlock()
	var full error
	if room := max(q.cap.MaxSendWR-s.track.open(), 0); len(wrs) > room && !s.flushed {
		wrs, full = wrs[:room], ErrQueueFull
	}
	for i := range wrs {
		w := &wrs[i]
		seq := s.track.add(w.ID, slotHeld, true, false)
		if needsORD(w.Opcode) && s.track.poisoned && !s.bad && q.qpState() != QPStateErr {
			s.bad = true
			s.track.fail(seq, WCLocQPOpErr, q.num)
		}
	}
	if s.flushed {
		s.track.flush(q.num)
	}
	cq.advance(q, &s.track, false)
	cq.ring()
	return len(wrs), full
}

// PostRecv hands a list over in one call.
func (q *cgoQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	r := &q.recv
	r.mu.Lock()
	st := q.qpState()
	if st == QPStateReset {
		r.mu.Unlock()
		return 0, &StateError{State: st, Why: "receives can be posted from INIT on"}
	}
	if q.tracked && st == QPStateErr {
		r.mu.Unlock()
		return q.recvHeld(wrs)
	}
	defer r.mu.Unlock()
	var full error
	if q.tracked {
		if r.track.lent+len(wrs) > q.cap.MaxRecvWR {
			r.mu.Unlock()
			q.recvCQ.relieve()
			r.mu.Lock()
		}
		if room := max(q.cap.MaxRecvWR-r.track.lent, 0); len(wrs) > room {
			if wrs, full = wrs[:room], ErrQueueFull; room == 0 {
				return 0, full
			}
		}
	}
	r.flat.fill(wrs, q.ctx.model.oneSGE)
	if q.tracked {
		for i := range r.flat.wrs {
			r.flat.wrs[i].id = C.uint64_t(idRecv | r.track.add(wrs[i].ID, slotLent, true, true))
		}
	}
	res := uint64(C.gv_post_recv(q.handle, &r.flat.wrs[0], r.flat.sgePointer(), C.int(len(wrs))))
	if res == uint64(len(wrs)) {
		return len(wrs), full
	}
	n, err := q.postResult("ibv_post_recv", res)
	if q.tracked && err != nil {
		r.track.withdraw(len(wrs) - n)
	}
	return n, err
}

// recvHeld takes receives of a QP in the error state, to be flushed.
func (q *cgoQP) recvHeld(wrs []RecvWR) (int, error) {
	cq, r := q.recvCQ, &q.recv
	cq.mu.Lock()
	defer cq.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	var full error
	if room := max(q.cap.MaxRecvWR-r.track.open(), 0); len(wrs) > room && !r.flushed {
		wrs, full = wrs[:room], ErrQueueFull
	}
	for i := range wrs {
		r.track.add(wrs[i].ID, slotHeld, true, false)
	}
	if r.flushed {
		r.track.flush(q.num)
	}
	cq.advance(q, &r.track, true)
	cq.ring()
	return len(wrs), full
}

// postResult reads what a posting function returned for the QP.
func (q *cgoQP) postResult(call string, res uint64) (int, error) {
	n, err := postResult(call, res)
	if err != nil && !q.tracked && errors.Is(err, errBroken) {
		go q.fail(err)
	}
	return n, err
}

// postResult reads what a posting function of cgo_verbs.h returned.
func postResult(call string, res uint64) (int, error) {
	taken, rc := int(uint32(res)), uint32(res>>32)
	switch {
	case rc == 0:
		return taken, nil
	case rc&C.GV_BROKEN != 0:
		err := callError(call, C.int(rc&^C.GV_BROKEN))
		if err == nil {
			return taken, fmt.Errorf("%s: %w", call, errBroken)
		}
		return taken, fmt.Errorf("%w: %w", errBroken, err)
	case rc == uint32(syscall.ENOMEM):
		return taken, fmt.Errorf("%w: %w", ErrQueueFull, callError(call, C.int(rc)))
	}
	return taken, callError(call, C.int(rc))
}

// BindMW queues the bind of a window of type 1.
func (q *cgoQP) BindMW(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	s := &q.send
	s.mu.Lock()
	defer s.mu.Unlock()
	switch st := q.qpState(); {
	case st < QPStateRTS:
		return 0, &StateError{State: st, Why: "windows can be bound from RTS on"}
	case q.tracked && (st == QPStateErr || s.track.poisoned):
		s.mu.Unlock()
		_, err := q.postHeld([]SendWR{{ID: id, Opcode: WRBindMW}})
		s.mu.Lock()
		return b.MW.RKey(), err
	}
	if q.tracked {
		id = q.lend(&SendWR{ID: id, Flags: flags})
	}
	mw := b.MW.p.(*cgoMW)
	if q.tracked {
		flags |= SendSignaled
	}
	rc := C.gv_bind_mw(q.c, C.uint64_t(id), C.uint(flags), mw.c, b.MR.p.(*cgoMR).c, C.uint64_t(b.Addr), C.uint64_t(b.Length), C.uint(b.Access))
	switch {
	case rc == 0:
		return uint32(mw.c.rkey), nil
	case q.tracked:
		s.track.withdraw(1)
	}
	if rc == C.int(syscall.ENOMEM) {
		return 0, fmt.Errorf("%w: %w", ErrQueueFull, callError("ibv_bind_mw", rc))
	}
	return 0, callError("ibv_bind_mw", rc)
}
