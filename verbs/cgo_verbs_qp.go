// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"context"
	"sync"
	"sync/atomic"
)

type cgoQP struct {
	ctx    *cgoContext
	owner  *QP
	c      *C.struct_ibv_qp
	num    uint32
	typ    QPType
	cookie uint64
	sendCQ *cgoCQ
	recvCQ *cgoCQ

	send sendQueue
	recv recvQueue

	modify sync.Mutex    // one change of state at a time
	state  atomic.Uint32 // a QPState: devices and connection managers move QPs, and siw does not tell
	err    atomic.Pointer[error]
}

// CreateQP makes a QP.
func (pd *cgoPD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	q := &cgoQP{ctx: pd.ctx, owner: owner, typ: cfg.Type, sendCQ: cfg.SendCQ.(*cgoCQ), recvCQ: cfg.RecvCQ.(*cgoCQ)}
	caps := C.struct_ibv_qp_cap{
		max_send_wr:     C.uint32_t(cfg.Cap.MaxSendWR),
		max_recv_wr:     C.uint32_t(cfg.Cap.MaxRecvWR),
		max_send_sge:    C.uint32_t(cfg.Cap.MaxSendSGE),
		max_recv_sge:    C.uint32_t(cfg.Cap.MaxRecvSGE),
		max_inline_data: C.uint32_t(cfg.Cap.MaxInlineData),
	}
	var srq *C.struct_ibv_srq
	if cfg.SRQ != nil {
		srq = cfg.SRQ.(*cgoSRQ).c
	}
	q.cookie = newCookie(q)
	rc := C.gv_create_qp(pd.c, C.uint64_t(q.cookie), q.sendCQ.c, q.recvCQ.c, srq, C.int(cfg.Type), C.int(boolInt(cfg.SigAll)), &caps, &q.c)
	if err := callError("ibv_create_qp", rc); err != nil {
		dropCookie(q.cookie)
		return nil, QPCap{}, err
	}
	q.num = uint32(q.c.qp_num)
	return q, QPCap{
		MaxSendWR:     max(int(caps.max_send_wr), cfg.Cap.MaxSendWR),
		MaxRecvWR:     max(int(caps.max_recv_wr), cfg.Cap.MaxRecvWR),
		MaxSendSGE:    max(int(caps.max_send_sge), cfg.Cap.MaxSendSGE),
		MaxRecvSGE:    max(int(caps.max_recv_sge), cfg.Cap.MaxRecvSGE),
		MaxInlineData: max(int(caps.max_inline_data), cfg.Cap.MaxInlineData),
	}, nil
}

// Num returns the number.
func (q *cgoQP) Num() uint32 { return q.num }

func (q *cgoQP) qpState() QPState { return QPState(q.state.Load()) }

// Err returns the first reason.
func (q *cgoQP) Err() error {
	if p := q.err.Load(); p != nil {
		return *p
	}
	return nil
}

// Moved notes where a connection manager has moved the QP.
func (q *cgoQP) Moved(to QPState, reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	q.moved(to, reason)
}

// moved notes a state. Only a reset leads out of ERR.
func (q *cgoQP) moved(to QPState, reason error) {
	if q.qpState() == QPStateErr && to != QPStateReset {
		return
	}
	if to == QPStateErr && reason != nil {
		q.err.CompareAndSwap(nil, &reason)
	}
	q.state.Store(uint32(to))
	if to == QPStateReset {
		q.err.Store(nil)
	}
}

// event notes what an event says about the QP.
func (q *cgoQP) event(ev *AsyncEvent) {
	switch ev.Type {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr:
		q.Moved(QPStateErr, &eventError{ev.Type})
		ev.Err = q.Err()
	}
}

// eventError is the end of a QP that an asynchronous event told.
type eventError struct{ typ EventType }

// Error returns the text of ibv_event_type_str.
func (e *eventError) Error() string { return e.typ.String() }

// Modify checks the change against the state diagram and makes it.
func (q *cgoQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	from := q.qpState()
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
		if err := CheckTransition(from, to); err != nil {
			return err
		}
	}
	ca := qpAttrToC(&attr)
	if err := callError("ibv_modify_qp", C.gv_result(C.ibv_modify_qp(q.c, &ca, C.int(mask)))); err != nil { // 0 or an errno
		return err
	}
	if mask&QPAttrState != 0 {
		q.moved(to, ErrClosed)
	}
	return nil
}

// Query asks the kernel, but for the state.
func (q *cgoQP) Query() (QPAttr, error) {
	var ca C.struct_ibv_qp_attr
	var init C.struct_ibv_qp_init_attr
	const all = C.IBV_QP_STATE | C.IBV_QP_CUR_STATE | C.IBV_QP_ACCESS_FLAGS | C.IBV_QP_PKEY_INDEX | C.IBV_QP_PORT | C.IBV_QP_QKEY | C.IBV_QP_AV |
		C.IBV_QP_PATH_MTU | C.IBV_QP_TIMEOUT | C.IBV_QP_RETRY_CNT | C.IBV_QP_RNR_RETRY | C.IBV_QP_RQ_PSN | C.IBV_QP_MAX_QP_RD_ATOMIC |
		C.IBV_QP_MIN_RNR_TIMER | C.IBV_QP_SQ_PSN | C.IBV_QP_MAX_DEST_RD_ATOMIC | C.IBV_QP_CAP | C.IBV_QP_DEST_QPN
	if err := callError("ibv_query_qp", C.gv_result(C.ibv_query_qp(q.c, &ca, all, &init))); err != nil { // 0 or an errno
		return QPAttr{}, err
	}
	attr := qpAttrFromC(&ca)
	attr.State = q.qpState()
	attr.CurState = attr.State
	return attr, nil
}

// Drain waits for the completions of a QP in the error state.
func (q *cgoQP) Drain(ctx context.Context) error { return ctx.Err() }

// Destroy destroys the QP.
func (q *cgoQP) Destroy() error {
	err := callError("ibv_destroy_qp", C.gv_result(C.ibv_destroy_qp(q.c))) // 0 or an errno
	dropCookie(q.cookie)
	return err
}

// AttachMcast joins the QP to a group.
func (q *cgoQP) AttachMcast(gid GID, lid uint16) error {
	return q.mcast("ibv_attach_mcast", gid, lid, 1)
}

// DetachMcast undoes AttachMcast.
func (q *cgoQP) DetachMcast(gid GID, lid uint16) error {
	return q.mcast("ibv_detach_mcast", gid, lid, 0)
}

func (q *cgoQP) mcast(call string, gid GID, lid uint16, attach C.int) error {
	g := C.union_ibv_gid(gid)
	return callError(call, C.gv_mcast(q.c, &g, C.uint16_t(lid), attach))
}

func qpAttrToC(a *QPAttr) C.struct_ibv_qp_attr {
	return C.struct_ibv_qp_attr{
		qp_state:            C.enum_ibv_qp_state(a.State),
		cur_qp_state:        C.enum_ibv_qp_state(a.CurState),
		path_mtu:            C.enum_ibv_mtu(a.PathMTU),
		qkey:                C.uint32_t(a.QKey),
		rq_psn:              C.uint32_t(a.RQPSN),
		sq_psn:              C.uint32_t(a.SQPSN),
		dest_qp_num:         C.uint32_t(a.DestQPNum),
		qp_access_flags:     C.uint(a.AccessFlags),
		ah_attr:             ahToC(a.AH),
		pkey_index:          C.uint16_t(a.PKeyIndex),
		en_sqd_async_notify: C.uint8_t(boolInt(a.SQDAsyncNotify)),
		max_rd_atomic:       C.uint8_t(a.MaxRdAtomic),
		max_dest_rd_atomic:  C.uint8_t(a.MaxDestRdAtomic),
		min_rnr_timer:       C.uint8_t(a.MinRNRTimer),
		port_num:            C.uint8_t(a.PortNum),
		timeout:             C.uint8_t(a.Timeout),
		retry_cnt:           C.uint8_t(a.RetryCnt),
		rnr_retry:           C.uint8_t(a.RNRRetry),
	}
}

func qpAttrFromC(c *C.struct_ibv_qp_attr) QPAttr {
	return QPAttr{
		PathMTU:         MTU(c.path_mtu),
		QKey:            uint32(c.qkey),
		RQPSN:           uint32(c.rq_psn),
		SQPSN:           uint32(c.sq_psn),
		DestQPNum:       uint32(c.dest_qp_num),
		AccessFlags:     AccessFlags(c.qp_access_flags),
		AH:              ahFromC(&c.ah_attr),
		PKeyIndex:       uint16(c.pkey_index),
		SQDAsyncNotify:  c.en_sqd_async_notify != 0,
		MaxRdAtomic:     int(c.max_rd_atomic),
		MaxDestRdAtomic: int(c.max_dest_rd_atomic),
		MinRNRTimer:     uint8(c.min_rnr_timer),
		PortNum:         uint8(c.port_num),
		Timeout:         uint8(c.timeout),
		RetryCnt:        uint8(c.retry_cnt),
		RNRRetry:        uint8(c.rnr_retry),
		Cap: QPCap{
			MaxSendWR:     int(c.cap.max_send_wr),
			MaxRecvWR:     int(c.cap.max_recv_wr),
			MaxSendSGE:    int(c.cap.max_send_sge),
			MaxRecvSGE:    int(c.cap.max_recv_sge),
			MaxInlineData: int(c.cap.max_inline_data),
		},
	}
}
