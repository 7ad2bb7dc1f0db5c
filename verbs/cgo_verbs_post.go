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
	bad     bool // the request that will fail is in the account
	flushed bool // the device has flushed all that it had
}

type recvQueue struct {
	mu      sync.Mutex // guards what follows; after that of a CQ
	flat    recvList
	track   track
	flushed bool
}

// fill converts wrs into the flat lists.
func (s *sendQueue) fill(wrs []SendWR) {
	s.wrs, s.sges, s.ext = s.wrs[:0], s.sges[:0], s.ext[:0]
	for i := range wrs {
		w := &wrs[i]
		if len(w.SGL) == 1 {
			s.sges = append(s.sges, w.SGL[0])
		} else {
			s.sges = append(s.sges, w.SGL...)
		}
		s.wrs = append(s.wrs, C.struct_gv_wr{
			id:          C.uint64_t(w.ID),
			remote_addr: C.uint64_t(w.RemoteAddr),
			rkey:        C.uint32_t(w.RKey),
			imm:         C.uint32_t(w.Imm),
			opcode:      C.uint8_t(w.Opcode),
			flags:       C.uint8_t(w.Flags),
			num_sge:     C.uint16_t(len(w.SGL)),
		})
		if w.UD != nil || w.Opcode > WRRDMARead {
			s.extend(w, &s.wrs[i])
		}
	}
}

// extend converts what few requests have.
func (s *sendQueue) extend(w *SendWR, f *C.struct_gv_wr) {
	var x C.struct_gv_ext
	switch w.Opcode {
	case WRLocalInv, WRSendWithInv:
		f.imm = C.uint32_t(w.InvalidateRKey)
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
func (s *sendQueue) post(qp *C.struct_ibv_qp) uint64 {
	return uint64(C.gv_post_send(qp, &s.wrs[0], (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(s.sges))), unsafe.SliceData(s.ext), C.int(len(s.wrs))))
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
	res := s.post(q.c)
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
	var full error
	if room := max(q.cap.MaxSendWR-s.track.open(), 0); len(wrs) > room {
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
			if m.reportsAll {
				s.wrs[i].flags |= C.IBV_SEND_SIGNALED
			}
		}
		res := s.post(q.c)
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
		if m.reportsAll && q.sendCQ.hidden.Load() > hiddenSlack/2 {
			s.mu.Unlock()
			q.sendCQ.relieve()
			s.mu.Lock()
		}
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
	visible := q.sigAll || w.Flags&SendSignaled != 0
	return q.send.track.add(w.ID, slotLent, visible, visible || q.ctx.model.reportsAll)
}

// adapt changes what the device would misunderstand.
func (s *sendQueue) adapt(m *model) {
	if !m.oneSGE && !m.noFence {
		return
	}
	empty := 0
	for i := range s.wrs {
		if w := &s.wrs[i]; w.opcode == C.uint8_t(WRRDMARead) {
			if m.noFence {
				w.flags &^= C.IBV_SEND_FENCE
			}
			if m.oneSGE && w.num_sge == 0 {
				empty++
			}
		}
	}
	if empty == 0 {
		return
	}
	// Rare: give each Read without elements one of length 0.
	sges := make([]SGE, 0, len(s.sges)+empty)
	at := 0
	for i := range s.wrs {
		w := &s.wrs[i]
		n := int(w.num_sge)
		sges = append(sges, s.sges[at:at+n]...)
		at += n
		if n == 0 && w.opcode == C.uint8_t(WRRDMARead) {
			sges = append(sges, SGE{})
			w.num_sge = 1
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
	if room := max(q.cap.MaxSendWR-s.track.open(), 0); len(wrs) > room {
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
		if room := max(q.cap.MaxRecvWR-r.track.open(), 0); len(wrs) > room {
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
	res := uint64(C.gv_post_recv(q.c, &r.flat.wrs[0], r.flat.sgePointer(), C.int(len(wrs))))
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
	if room := max(q.cap.MaxRecvWR-r.track.open(), 0); len(wrs) > room {
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
	case q.tracked && s.track.open() >= q.cap.MaxSendWR:
		return 0, ErrQueueFull
	}
	if q.tracked {
		id = q.lend(&SendWR{ID: id, Flags: flags})
	}
	mw := b.MW.p.(*cgoMW)
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
