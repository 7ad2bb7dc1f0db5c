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

type sendQueue struct {
	mu   sync.Mutex // guards what follows
	wrs  []C.struct_gv_wr
	sges []SGE
	ext  []C.struct_gv_ext
}

type recvQueue struct {
	mu   sync.Mutex // guards what follows
	flat recvList
}

// fill converts wrs into the flat lists.
func (s *sendQueue) fill(wrs []SendWR, oneSGE bool) {
	s.wrs, s.sges, s.ext = s.wrs[:0], s.sges[:0], s.ext[:0]
	for i := range wrs {
		w := &wrs[i]
		n := len(w.SGL)
		if n == 1 {
			s.sges = append(s.sges, w.SGL[0])
		} else {
			s.sges = append(s.sges, w.SGL...)
			if n == 0 && oneSGE {
				s.sges = append(s.sges, SGE{})
				n = 1
			}
		}
		f := C.struct_gv_wr{id: C.uint64_t(w.ID), remote_addr: C.uint64_t(w.RemoteAddr), rkey: C.uint32_t(w.RKey), imm: C.uint32_t(w.Imm),
			opcode: C.uint8_t(w.Opcode), flags: C.uint8_t(w.Flags), num_sge: C.uint16_t(n)}
		if w.UD != nil || w.Opcode > WRRDMARead {
			s.extend(w, &f)
		}
		s.wrs = append(s.wrs, f)
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

// PostSend hands a list over in one call.
func (q *cgoQP) PostSend(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if st := q.qpState(); st < QPStateRTS {
		return 0, &StateError{State: st, Why: "sends can be posted from RTS on"}
	}
	s := &q.send
	s.mu.Lock()
	s.fill(wrs, q.ctx.model.oneSGE)
	res := uint64(C.gv_post_send(q.c, &s.wrs[0], (*C.struct_ibv_sge)(unsafe.Pointer(unsafe.SliceData(s.sges))), unsafe.SliceData(s.ext), C.int(len(wrs))))
	s.mu.Unlock()
	if res == uint64(len(wrs)) {
		return len(wrs), nil
	}
	return postResult("ibv_post_send", res, len(wrs))
}

// PostRecv hands a list over in one call.
func (q *cgoQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	if q.qpState() == QPStateReset {
		return 0, &StateError{State: QPStateReset, Why: "receives can be posted from INIT on"}
	}
	r := &q.recv
	r.mu.Lock()
	r.flat.fill(wrs, q.ctx.model.oneSGE)
	res := uint64(C.gv_post_recv(q.c, &r.flat.wrs[0], r.flat.sgePointer(), C.int(len(wrs))))
	r.mu.Unlock()
	if res == uint64(len(wrs)) {
		return len(wrs), nil
	}
	return postResult("ibv_post_recv", res, len(wrs))
}

// postResult reads what a posting function of cgo_verbs.h returned.
func postResult(call string, res uint64, n int) (int, error) {
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
	mw := b.MW.p.(*cgoMW)
	rc := C.gv_bind_mw(q.c, C.uint64_t(id), C.uint(flags), mw.c, b.MR.p.(*cgoMR).c, C.uint64_t(b.Addr), C.uint64_t(b.Length), C.uint(b.Access))
	if rc != 0 {
		return 0, callError("ibv_bind_mw", rc)
	}
	return uint32(mw.c.rkey), nil
}
