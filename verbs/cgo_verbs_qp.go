// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// cgoQP is a queue pair. Its state is kept here: connection managers move QPs behind the library's back, and siw does not
// tell.
type cgoQP struct {
	ctx     *cgoContext
	owner   *QP
	c       *C.struct_ibv_qp
	handle  C.uintptr_t // c
	num     uint32
	typ     QPType
	cookie  uint64
	sendCQ  *cgoCQ
	recvCQ  *cgoCQ
	srq     *cgoSRQ
	cap     QPCap
	places  int // of the device's send queue
	sigAll  bool
	tracked bool

	send  sendQueue
	recv  recvQueue
	state atomic.Uint32 // a QPState
	ord   atomic.Int32  // Reads in progress that the peer takes
	why   atomic.Pointer[error]
	vague atomic.Pointer[error] // a reason that gives way to a better one
	marks atomic.Uint32         // which marks of a drain have come back
	heard atomic.Bool           // the peer has answered

	failure signal                  // fired in ERR, and by Destroy
	modify  sync.Mutex              // one change of state at a time; before every other lock
	groups  map[mcastGroup]struct{} // that the QP is in; guarded by modify
	gone    bool                    // guarded by modify: destroyed
	ended   bool                    // guarded by modify: the device has been told to flush
	marked  uint32                  // guarded by modify: which marks have been posted
	port    uint8                   // guarded by modify: what was set, for siw, which forgets it
	access  AccessFlags             // guarded by modify: as port
	initial bool                    // guarded by modify: in ERR, the device is still in RESET
}

// CreateQP makes a QP.
func (pd *cgoPD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	m := &pd.ctx.model
	q := &cgoQP{ctx: pd.ctx, owner: owner, typ: cfg.Type, sendCQ: cfg.SendCQ.(*cgoCQ), recvCQ: cfg.RecvCQ.(*cgoCQ), sigAll: cfg.SigAll, tracked: m.tracked}
	caps := C.struct_ibv_qp_cap{
		max_send_wr:     C.uint32_t(cfg.Cap.MaxSendWR),
		max_recv_wr:     C.uint32_t(cfg.Cap.MaxRecvWR),
		max_send_sge:    C.uint32_t(cfg.Cap.MaxSendSGE),
		max_recv_sge:    C.uint32_t(cfg.Cap.MaxRecvSGE),
		max_inline_data: C.uint32_t(cfg.Cap.MaxInlineData),
	}
	if m.short > 0 { // a Read can become two, and an element; see halve
		caps.max_send_wr = C.uint32_t(max(cfg.Cap.MaxSendWR, min(2*cfg.Cap.MaxSendWR+len(rouseAfter), pd.ctx.attr.MaxQPWR)))
		caps.max_send_sge = C.uint32_t(max(cfg.Cap.MaxSendSGE, 2))
	}
	var srq *C.struct_ibv_srq
	if cfg.SRQ != nil {
		q.srq = cfg.SRQ.(*cgoSRQ)
		srq = q.srq.c
	}
	if err := pd.ctx.counts.qp.add(); err != nil {
		return nil, QPCap{}, err
	}
	q.cookie = newCookie(q)
	rc := C.gv_create_qp(pd.c, C.uint64_t(q.cookie), q.sendCQ.c, q.recvCQ.c, srq, C.int(cfg.Type), C.int(boolInt(cfg.SigAll)), &caps, &q.c)
	if err := callError("ibv_create_qp", rc); err != nil {
		dropCookie(q.cookie)
		pd.ctx.counts.qp.remove()
		return nil, QPCap{}, err
	}
	q.num = uint32(q.c.qp_num)
	q.send.ud = q.typ == QPTypeUD
	q.ord.Store(unknownORD)
	q.handle = C.uintptr_t(uintptr(unsafe.Pointer(q.c)))
	q.cap = QPCap{
		MaxSendWR:     max(int(caps.max_send_wr), cfg.Cap.MaxSendWR),
		MaxRecvWR:     max(int(caps.max_recv_wr), cfg.Cap.MaxRecvWR),
		MaxSendSGE:    max(int(caps.max_send_sge), cfg.Cap.MaxSendSGE),
		MaxRecvSGE:    max(int(caps.max_recv_sge), cfg.Cap.MaxRecvSGE),
		MaxInlineData: max(int(caps.max_inline_data), cfg.Cap.MaxInlineData),
	}
	q.places = q.cap.MaxSendWR
	if m.short > 0 {
		q.places = max(q.places-len(rouseAfter), 1)
		q.cap.MaxSendWR, q.cap.MaxSendSGE = cfg.Cap.MaxSendWR, cfg.Cap.MaxSendSGE
	}
	if m.tracked {
		q.send.track.hidden = &q.sendCQ.hidden
	}
	q.sendCQ.attach(q)
	q.recvCQ.attach(q)
	return q, q.cap, nil
}

// Num returns the number.
func (q *cgoQP) Num() uint32 { return q.num }

func (q *cgoQP) qpState() QPState { return QPState(q.state.Load()) }

// Err returns the first reason.
func (q *cgoQP) Err() error {
	for _, p := range []*error{q.why.Load(), q.vague.Load()} {
		if p != nil {
			return *p
		}
	}
	if q.qpState() == QPStateErr {
		return WCWRFlushErr
	}
	return nil
}

// because notes a reason for the error state. A flush is one that says little.
func (q *cgoQP) because(reason error) {
	switch {
	case reason == nil:
	case reason == error(WCWRFlushErr):
		q.vague.CompareAndSwap(nil, &reason)
	default:
		q.why.CompareAndSwap(nil, &reason)
	}
}

// vagueDelay is how long a failure that only flushed requests tell is kept from connection managers, which may learn the
// reason meanwhile.
const vagueDelay = 200 * time.Millisecond

// tellFailed tells who watches the QP that it has failed.
func (q *cgoQP) tellFailed() {
	if q.why.Load() != nil {
		q.failure.fire()
		return
	}
	time.AfterFunc(vagueDelay, func() {
		if q.qpState() == QPStateErr {
			q.failure.fire()
		}
	})
}

// refused notes an error among the completions, under the lock of their CQ. It reports whether it was a mark of a drain.
func (q *cgoQP) refused(wc *WC) (mark bool) {
	if !q.tracked {
		switch wc.ID {
		case markID[0]:
			q.marks.Or(markSend)
			return true
		case markID[1]:
			q.marks.Or(markRecv)
			return true
		}
	}
	st := q.qpState()
	if st < QPStateRTR || q.typ != QPTypeRC && !q.tracked {
		return false
	}
	q.because(wc.Status)
	if st != QPStateErr && q.state.CompareAndSwap(uint32(st), uint32(QPStateErr)) {
		q.tellFailed()
		if q.tracked {
			go q.fail(nil)
		}
	}
	return false
}

// event notes what an event says about the QP.
func (q *cgoQP) event(ev *AsyncEvent) {
	switch ev.Type {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr:
		q.fail(&eventError{ev.Type})
		ev.Err = q.Err()
	}
}

// eventError is the end of a QP that an asynchronous event told.
type eventError struct{ typ EventType }

// Error returns the text of ibv_event_type_str.
func (e *eventError) Error() string { return e.typ.String() }

// query asks the kernel.
func (q *cgoQP) query() (QPAttr, error) {
	var ca C.struct_ibv_qp_attr
	var init C.struct_ibv_qp_init_attr
	const all = C.IBV_QP_STATE | C.IBV_QP_CUR_STATE | C.IBV_QP_ACCESS_FLAGS | C.IBV_QP_PKEY_INDEX | C.IBV_QP_PORT | C.IBV_QP_QKEY | C.IBV_QP_AV |
		C.IBV_QP_PATH_MTU | C.IBV_QP_TIMEOUT | C.IBV_QP_RETRY_CNT | C.IBV_QP_RNR_RETRY | C.IBV_QP_RQ_PSN | C.IBV_QP_MAX_QP_RD_ATOMIC |
		C.IBV_QP_MIN_RNR_TIMER | C.IBV_QP_SQ_PSN | C.IBV_QP_MAX_DEST_RD_ATOMIC | C.IBV_QP_CAP | C.IBV_QP_DEST_QPN
	if err := callError("ibv_query_qp", C.gv_result(C.ibv_query_qp(q.c, &ca, all, &init))); err != nil { // 0 or an errno
		return QPAttr{}, err
	}
	attr := qpAttrFromC(&ca)
	if q.ctx.model.lies {
		attr.MaxRdAtomic, attr.MaxDestRdAtomic = attr.MaxDestRdAtomic, attr.MaxRdAtomic
	}
	return attr, nil
}

// Query asks the kernel. The state is the provider's, unless the device has left it for an error.
func (q *cgoQP) Query() (QPAttr, error) {
	attr, err := q.query()
	if err != nil {
		return QPAttr{}, err
	}
	if st := q.qpState(); !q.ctx.model.lies && st >= QPStateInit && st != QPStateErr {
		switch attr.State {
		case QPStateErr:
			q.fail(WCWRFlushErr)
		case QPStateSQE, QPStateSQD:
			q.state.CompareAndSwap(uint32(st), uint32(attr.State))
		}
	}
	if q.ctx.model.lies {
		q.modify.Lock()
		attr.PortNum, attr.AccessFlags = q.port, q.access
		q.modify.Unlock()
	}
	attr.State = q.qpState()
	attr.CurState = attr.State
	attr.Cap = q.cap
	return attr, nil
}

// Destroy cuts the connection, has all requests flushed and destroys the QP.
func (q *cgoQP) Destroy() error {
	q.failure.fire()
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.qpState() != QPStateReset {
		q.failLocked(ErrClosed)
		if !q.tracked {
			// A device that does not flush loses the completions, which is better than to hang.
			ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
			_ = q.drainMarks(ctx)
			cancel()
		}
	} else {
		q.barrier()
	}
	// A QP in a group is not destroyed.
	for g := range q.groups {
		_ = q.mcast("ibv_detach_mcast", g.gid, g.lid, 0)
	}
	err := callError("ibv_destroy_qp", C.gv_result(C.ibv_destroy_qp(q.c))) // 0 or an errno
	q.gone = true
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	dropCookie(q.cookie)
	q.ctx.counts.qp.remove()
	return err
}
