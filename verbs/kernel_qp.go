// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// kernelQP is a queue pair. Its state is kept here: connection managers move QPs behind the library's back, and siw does not
// tell.
type kernelQP struct {
	ctx     *kernelContext
	owner   *QP
	c       rawQP
	num     uint32
	typ     QPType
	cookie  uint64
	sendCQ  *kernelCQ
	recvCQ  *kernelCQ
	srq     *kernelSRQ
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
func (pd *kernelPD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	m := &pd.ctx.model
	sendCQ, recvCQ, srq, err := ownQueues(&cfg)
	if err != nil {
		return nil, QPCap{}, err
	}
	q := &kernelQP{ctx: pd.ctx, owner: owner, typ: cfg.Type, sendCQ: sendCQ, recvCQ: recvCQ, srq: srq, sigAll: cfg.SigAll, tracked: m.tracked}
	want := rawQPConfig{sendCQ: q.sendCQ.c, recvCQ: q.recvCQ.c, typ: cfg.Type, sigAll: cfg.SigAll, cap: cfg.Cap}
	if m.short > 0 { // a Read can become two, and an element; see halve
		want.cap.MaxSendWR = max(cfg.Cap.MaxSendWR, min(2*cfg.Cap.MaxSendWR+emptyWrites, pd.ctx.attr.MaxQPWR))
		want.cap.MaxSendSGE = max(cfg.Cap.MaxSendSGE, 2)
	}
	if srq != nil {
		want.srq = srq.c
	}
	if err := pd.ctx.counts.qp.add(); err != nil {
		return nil, QPCap{}, err
	}
	q.cookie = newCookie(q)
	want.cookie = q.cookie
	var has QPCap
	var rc int
	if q.c, has, q.num, rc = pd.c.createQP(want); rc != 0 {
		dropCookie(q.cookie)
		pd.ctx.counts.qp.remove()
		return nil, QPCap{}, callError("ibv_create_qp", rc)
	}
	q.send.ud = q.typ == QPTypeUD
	q.ord.Store(unknownORD)
	q.cap = QPCap{
		MaxSendWR:     max(has.MaxSendWR, cfg.Cap.MaxSendWR),
		MaxRecvWR:     max(has.MaxRecvWR, cfg.Cap.MaxRecvWR),
		MaxSendSGE:    max(has.MaxSendSGE, cfg.Cap.MaxSendSGE),
		MaxRecvSGE:    max(has.MaxRecvSGE, cfg.Cap.MaxRecvSGE),
		MaxInlineData: max(has.MaxInlineData, cfg.Cap.MaxInlineData),
	}
	q.places = q.cap.MaxSendWR
	if m.short > 0 {
		q.places = max(q.places-emptyWrites, 1)
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
func (q *kernelQP) Num() uint32 { return q.num }

func (q *kernelQP) qpState() QPState { return QPState(q.state.Load()) }

// Err returns the first reason.
func (q *kernelQP) Err() error {
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
func (q *kernelQP) because(reason error) {
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
func (q *kernelQP) tellFailed() {
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
func (q *kernelQP) refused(wc *WC) (mark bool) {
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
func (q *kernelQP) event(ev *AsyncEvent) {
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
func (q *kernelQP) query() (QPAttr, error) {
	attr, rc := q.c.query()
	if rc != 0 {
		return QPAttr{}, callError("ibv_query_qp", rc)
	}
	if q.ctx.model.lies {
		attr.MaxRdAtomic, attr.MaxDestRdAtomic = attr.MaxDestRdAtomic, attr.MaxRdAtomic
	}
	return attr, nil
}

// Query asks the kernel. The state is the provider's, unless the device has left it for an error.
func (q *kernelQP) Query() (QPAttr, error) {
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
func (q *kernelQP) Destroy() error {
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
		_ = q.mcast("ibv_detach_mcast", g.gid, g.lid, false)
	}
	err := callError("ibv_destroy_qp", q.c.destroy())
	q.gone = true
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	dropCookie(q.cookie)
	q.ctx.counts.qp.remove()
	return err
}
