// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// #include "cgo_verbs.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
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
	sigAll  bool
	tracked bool

	send  sendQueue
	recv  recvQueue
	state atomic.Uint32 // a QPState
	ord   atomic.Int32  // Reads in progress that the peer takes
	why   atomic.Pointer[error]
	vague atomic.Pointer[error] // a reason that gives way to a better one
	marks atomic.Uint32         // which marks of a drain have come back

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

// The two marks that end the queues of a QP that is drained.
const (
	markSend = 1 << iota
	markRecv
)

// markID are the wr_ids of the marks, which no program's equals but by a chance of 1 in 2^64.
var markID = [2]uint64{rand.Uint64(), rand.Uint64()}

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
	q.ord.Store(unknownORD)
	q.handle = C.uintptr_t(uintptr(unsafe.Pointer(q.c)))
	q.cap = QPCap{
		MaxSendWR:     max(int(caps.max_send_wr), cfg.Cap.MaxSendWR),
		MaxRecvWR:     max(int(caps.max_recv_wr), cfg.Cap.MaxRecvWR),
		MaxSendSGE:    max(int(caps.max_send_sge), cfg.Cap.MaxSendSGE),
		MaxRecvSGE:    max(int(caps.max_recv_sge), cfg.Cap.MaxRecvSGE),
		MaxInlineData: max(int(caps.max_inline_data), cfg.Cap.MaxInlineData),
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
	if st < QPStateRTR || st == QPStateErr || q.typ != QPTypeRC && !q.tracked {
		return false
	}
	q.because(wc.Status)
	if q.state.CompareAndSwap(uint32(st), uint32(QPStateErr)) {
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

// Moved notes where a connection manager has moved the QP. When it is ERR, all requests have been flushed on return.
func (q *cgoQP) Moved(to QPState, reason error) {
	if to == QPStateErr {
		q.fail(reason)
		return
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone || q.qpState() == QPStateErr {
		return
	}
	if to == QPStateRTS && q.ctx.model.lies {
		// It swaps the two depths.
		if attr, err := q.query(); err == nil {
			q.ord.Store(int32(attr.MaxRdAtomic))
		}
	}
	q.state.Store(uint32(to))
}

// Modify checks the change against the state diagram and makes it.
func (q *cgoQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	from := q.qpState()
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	if err := checkModify(q.typ, q.ctx.dev.info.Transport, from, to, mask); err != nil {
		return err
	}
	if err := checkAttrs(&attr, mask, from, q.ctx.attr.PhysPortCnt); err != nil {
		return err
	}
	switch {
	case to == QPStateErr:
		q.failLocked(ErrClosed)
		return nil
	case to == QPStateReset && from != QPStateReset:
		return q.reset()
	}
	ca := qpAttrToC(&attr)
	if err := callError("ibv_modify_qp", C.gv_result(C.ibv_modify_qp(q.c, &ca, C.int(mask)))); err != nil { // 0 or an errno
		return explainModify(err, from, to, mask, &attr)
	}
	if mask&QPAttrPort != 0 {
		q.port = attr.PortNum
	}
	if mask&QPAttrAccessFlags != 0 {
		q.access = attr.AccessFlags
	}
	if mask&QPAttrMaxRdAtomic != 0 {
		q.ord.Store(int32(attr.MaxRdAtomic))
	}
	q.state.Store(uint32(to))
	return nil
}

// explainModify adds what was asked for to an errno that says little.
func explainModify(err error, from, to QPState, mask QPAttrMask, attr *QPAttr) error {
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return fmt.Errorf("%w: %v to %v with %v, which the state diagram allows: one of the values is wrong: %+v", err, from, to, mask, *attr)
}

// reset makes the QP as new. What was posted is forgotten, without completions.
func (q *cgoQP) reset() error {
	if q.ctx.model.lies && q.qpState() != QPStateInit && !q.initial {
		return fmt.Errorf("%w: the driver does not reset a QP that has been connected", ErrNotSupported)
	}
	var ca C.struct_ibv_qp_attr
	ca.qp_state = C.IBV_QPS_RESET
	q.state.Store(uint32(QPStateReset)) // no more posts
	q.barrier()
	if err := callError("ibv_modify_qp", C.gv_result(C.ibv_modify_qp(q.c, &ca, C.IBV_QP_STATE))); err != nil { // 0 or an errno
		q.failLocked(err)
		return err
	}
	q.send.mu.Lock()
	q.send.track.drop()
	q.send.bad, q.send.flushed = false, false
	q.send.mu.Unlock()
	q.recv.mu.Lock()
	q.recv.track.drop()
	q.recv.flushed = false
	q.recv.mu.Unlock()
	q.ended, q.initial, q.marked = false, false, 0
	q.marks.Store(0)
	q.why.Store(nil)
	q.vague.Store(nil)
	q.ord.Store(unknownORD)
	q.failure.renew()
	return nil
}

// barrier returns when no post is in progress that has seen an older state.
func (q *cgoQP) barrier() {
	q.send.mu.Lock()
	//lint:ignore SA2001 the critical section is the posts'
	q.send.mu.Unlock()
	q.recv.mu.Lock()
	//lint:ignore SA2001 as above
	q.recv.mu.Unlock()
}

// flushLimit is how long a device that flushes by itself may take.
const flushLimit = 500 * time.Millisecond

// fail moves the QP to the error state. On a tracked device all requests have been flushed on return.
func (q *cgoQP) fail(reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone {
		q.failLocked(reason)
	}
}

func (q *cgoQP) failLocked(reason error) {
	q.because(reason)
	from := QPState(q.state.Swap(uint32(QPStateErr)))
	if q.why.Load() != nil || from != QPStateErr {
		q.tellFailed()
	}
	if q.ended {
		return
	}
	q.ended = true
	q.barrier()
	if from == QPStateReset {
		// The kernel knows no way from RESET to ERR.
		q.initial = true
	} else {
		var ca C.struct_ibv_qp_attr
		ca.qp_state = C.IBV_QPS_ERR
		// 0 or an errno. One that is in ERR already flushes what has come since; one whose device is gone has nothing
		// to flush.
		C.ibv_modify_qp(q.c, &ca, C.IBV_QP_STATE)
	}
	if q.tracked {
		q.flush()
	}
}

// flush waits until the device has flushed what it has, and flushes the rest: requests that the device forgot, and those
// that it never got.
func (q *cgoQP) flush() {
	pause := 20 * time.Microsecond
	for start := time.Now(); ; {
		lent := q.collect()
		if lent == 0 || !q.ctx.model.flushes || time.Since(start) > flushLimit {
			break
		}
		time.Sleep(pause)
		pause = min(2*pause, 5*time.Millisecond)
	}
	cq := q.sendCQ
	cq.mu.Lock()
	q.send.mu.Lock()
	q.send.track.flush(q.num)
	q.send.flushed = true
	cq.advance(q, &q.send.track, false)
	q.send.mu.Unlock()
	cq.ring()
	cq.mu.Unlock()
	cq = q.recvCQ
	cq.mu.Lock()
	q.recv.mu.Lock()
	q.recv.track.flush(q.num)
	q.recv.flushed = true
	cq.advance(q, &q.recv.track, true)
	q.recv.mu.Unlock()
	cq.ring()
	cq.mu.Unlock()
}

// collect takes all that the device has completed and returns how many requests of the QP it still has.
func (q *cgoQP) collect() int {
	for _, cq := range []*cgoCQ{q.sendCQ, q.recvCQ} {
		cq.mu.Lock()
		// A CQ that cannot be polled has nothing for us.
		_ = cq.pump(math.MaxInt)
		cq.ring()
		cq.mu.Unlock()
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	q.recv.mu.Lock()
	defer q.recv.mu.Unlock()
	return q.send.track.lent + q.recv.track.lent
}

// Drain waits for the completions of a QP in the error state. On a tracked device they are there.
func (q *cgoQP) Drain(ctx context.Context) error {
	if err := ctx.Err(); err != nil || q.tracked {
		return err
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.drainMarks(ctx)
}

// drainMarks posts a request to each queue, which the device will flush as the last, and waits for both.
func (q *cgoQP) drainMarks(ctx context.Context) error {
	if q.initial || q.qpState() != QPStateErr {
		return nil
	}
	for _, cq := range []*cgoCQ{q.sendCQ, q.recvCQ} {
		cq.mu.Lock()
		cq.drains++
		cq.slow.Store(true)
		cq.mu.Unlock()
		defer func() {
			cq.mu.Lock()
			cq.drains--
			cq.mu.Unlock()
		}()
	}
	pause := 5 * time.Microsecond
	for {
		done, err := q.postMarks()
		q.collect()
		if err != nil || done && q.marks.Load() == q.marked {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Millisecond)
	}
}

// postMarks posts the marks that are still missing. It is false while a queue is full.
func (q *cgoQP) postMarks() (bool, error) {
	full := false
	if q.marked&markSend == 0 && q.typ != QPTypeUD { // a datagram needs a destination even to be flushed
		wr := C.struct_gv_wr{id: C.uint64_t(markID[0]), op: flatOp(WRSend, SendSignaled, 0)}
		_, err := postResult("ibv_post_send", uint64(C.gv_post_send(q.handle, &wr, nil, nil, 1)))
		switch {
		case err == nil:
			q.marked |= markSend
		case errors.Is(err, ErrQueueFull):
			full = true
		default:
			return false, err
		}
	}
	if q.marked&markRecv == 0 && q.srq == nil {
		wr := C.struct_gv_recv{id: C.uint64_t(markID[1])}
		_, err := postResult("ibv_post_recv", uint64(C.gv_post_recv(q.handle, &wr, nil, 1)))
		switch {
		case err == nil:
			q.marked |= markRecv
		case errors.Is(err, ErrQueueFull):
			full = true
		default:
			return false, err
		}
	}
	return !full, nil
}

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

// AttachMcast joins the QP to a group.
func (q *cgoQP) AttachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_attach_mcast", gid, lid, 1); err != nil {
		return err
	}
	if q.groups == nil {
		q.groups = make(map[mcastGroup]struct{})
	}
	q.groups[mcastGroup{gid, lid}] = struct{}{}
	return nil
}

// DetachMcast undoes AttachMcast.
func (q *cgoQP) DetachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_detach_mcast", gid, lid, 0); err != nil {
		return err
	}
	delete(q.groups, mcastGroup{gid, lid})
	return nil
}

// mcastGroup is a group that a QP is in.
type mcastGroup struct {
	gid GID
	lid uint16
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
