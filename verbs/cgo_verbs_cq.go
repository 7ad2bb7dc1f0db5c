// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #cgo noescape gv_poll
// #cgo nocallback gv_poll
// #include "cgo_verbs.h"
import "C"

import (
	"errors"
	"sync/atomic"
	"unsafe"
)

// gv_poll writes type WC.
var (
	_ [0]struct{} = [unsafe.Sizeof(WC{}) - C.sizeof_struct_gv_wc]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.Imm64) - unsafe.Offsetof(C.struct_gv_wc{}.imm64)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.InvalidatedRKey) - unsafe.Offsetof(C.struct_gv_wc{}.invalidated_rkey)]struct{}{}
	_ [0]struct{} = [unsafe.Offsetof(WC{}.DLIDPathBits) - unsafe.Offsetof(C.struct_gv_wc{}.dlid_path_bits)]struct{}{}
)

type cgoCQ struct {
	ctx      *cgoContext
	owner    *CQ
	c        *C.struct_ibv_cq
	ch       *cgoChannel
	cookie   uint64
	cqe      atomic.Int64
	overflow atomic.Bool
}

// CreateCQ makes a completion queue.
func (c *cgoContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel) (ProviderCQ, error) {
	cq := &cgoCQ{ctx: c, owner: owner, ch: ch.(*cgoChannel)}
	cq.cookie = newCookie(cq)
	rc := C.gv_create_cq(c.c, C.int(cqe), C.uint64_t(cq.cookie), cq.ch.c, &cq.c)
	if err := callError("ibv_create_cq", rc); err != nil {
		dropCookie(cq.cookie)
		return nil, err
	}
	cq.ch.retain()
	cq.cqe.Store(int64(cq.c.cqe))
	return cq, nil
}

// Poll has completions converted in C, straight into wcs.
func (cq *cgoCQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	n := C.gv_poll(cq.c, (*C.struct_gv_wc)(unsafe.Pointer(&wcs[0])), C.int(len(wcs)))
	if n > 0 {
		return int(n), nil
	}
	return 0, cq.empty(n)
}

// empty is what Poll says when there is nothing.
func (cq *cgoCQ) empty(n C.int) error {
	if n < 0 {
		return callError("ibv_poll_cq", -1)
	}
	if cq.overflow.Load() {
		return ErrCQOverflow
	}
	return nil
}

// ReqNotify arms the CQ.
func (cq *cgoCQ) ReqNotify(solicitedOnly bool) error {
	return callError("ibv_req_notify_cq", C.gv_req_notify_cq(cq.c, C.int(boolInt(solicitedOnly))))
}

// CQE is how many completions there is room for.
func (cq *cgoCQ) CQE() int { return int(cq.cqe.Load()) }

// Resize changes the room.
func (cq *cgoCQ) Resize(cqe int) error {
	if err := callError("ibv_resize_cq", C.gv_result(C.ibv_resize_cq(cq.c, C.int(cqe)))); err != nil { // 0 or an errno
		return err
	}
	cq.cqe.Store(int64(cq.c.cqe))
	return nil
}

// event notes what an event says about the CQ.
func (cq *cgoCQ) event(ev *AsyncEvent) {
	if ev.Type == EventCQErr {
		ev.Err = ErrCQOverflow
		cq.overflow.Store(true)
	}
}

// Destroy destroys the CQ. All its events have been acknowledged as they were read, so the library has nothing to wait
// for.
func (cq *cgoCQ) Destroy() error {
	err := callError("ibv_destroy_cq", C.gv_result(C.ibv_destroy_cq(cq.c))) // 0 or an errno
	dropCookie(cq.cookie)
	return errors.Join(err, cq.ch.release())
}
