// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/calllock"
	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelQP is a queue pair. It tracks the QP state itself, because connection managers change it
// without the library's knowledge.
type kernelQP struct {
	ctx    *kernelContext
	owner  *QP
	c      ibverbs.QP
	num    uint32
	typ    QPType
	cookie uint64
	sendCQ *kernelCQ
	recvCQ *kernelCQ
	srq    *kernelSRQ // nil = a receive queue of its own
	cap    QPCap

	send  sendQueue
	recv  recvQueue
	posts [2]sync.Locker // locks held by posts to the send queue and to the receive queue
	state atomic.Uint32  // a QPState
	why   atomic.Pointer[error]
	vague atomic.Pointer[error] // a reason that a more specific one replaces
	marks atomic.Uint32         // marks of a drain that have completed

	failure signal                  // fired in ERR, and by Destroy
	modify  sync.Mutex              // serialises state changes; acquired before every other lock
	groups  map[mcastGroup]struct{} // multicast groups the QP is attached to; guarded by modify
	gone    bool                    // guarded by modify: destroyed
	ended   bool                    // guarded by modify: the device was asked to flush
	marked  uint32                  // guarded by modify: marks posted
	initial bool                    // guarded by modify: in ERR, the device is still in RESET
}

// sendQueue converts lists of sends.
type sendQueue struct {
	direct calllock.Lock // held by a post
	sendList
	simple *[256]uint8 // see simpleOps
}

// recvQueue converts lists of receives.
type recvQueue struct {
	direct calllock.Lock // held by a post
	flat   recvList
}

// CreateQP creates a QP.
func (pd *kernelPD) CreateQP(owner *QP, cfg ProviderQPConfig) (ProviderQP, QPCap, error) {
	var err error
	q := new(kernelQP)
	if q.sendCQ, q.recvCQ, q.srq, err = ownQueues[*kernelCQ, *kernelSRQ](&cfg); err != nil {
		return nil, QPCap{}, err
	}
	if err := q.create(pd, owner, cfg, cfg.Cap, q); err != nil {
		return nil, QPCap{}, err
	}
	q.posts = [2]sync.Locker{&q.send.direct, &q.recv.direct}
	q.sendCQ.attach(q)
	q.recvCQ.attach(q)
	return q, q.cap, nil
}

// create creates the QP with the capacities want on the queues already set in q. Its events go to
// target.
func (q *kernelQP) create(pd *kernelPD, owner *QP, cfg ProviderQPConfig, want QPCap, target asyncTarget) error {
	q.ctx, q.owner, q.typ = pd.ctx, owner, cfg.Type
	flat := ibverbs.QPConfig{SendCQ: q.sendCQ.c, RecvCQ: q.recvCQ.c, Type: uint32(cfg.Type), SigAll: cfg.SigAll,
		Cap: flatCap(want), AtomicWrite: cfg.SendOps.Has(OpAtomicWrite)}
	if q.srq != nil {
		flat.SRQ = q.srq.c
	}
	if err := pd.ctx.counts.qp.add(); err != nil {
		return err
	}
	q.cookie = newCookie(target)
	flat.Cookie = q.cookie
	var made ibverbs.QPCap
	var err error
	if q.c, made, q.num, err = pd.c.CreateQP(flat); err != nil {
		dropCookie(q.cookie)
		pd.ctx.counts.qp.remove()
		if flat.AtomicWrite {
			return callError("ibv_create_qp_ex", err)
		}
		return callError("ibv_create_qp", err)
	}
	has := publicCap(made)
	q.send.ud = q.typ == QPTypeUD
	q.cap = QPCap{
		MaxSendWR:     max(has.MaxSendWR, cfg.Cap.MaxSendWR),
		MaxRecvWR:     max(has.MaxRecvWR, cfg.Cap.MaxRecvWR),
		MaxSendSGE:    max(has.MaxSendSGE, cfg.Cap.MaxSendSGE),
		MaxRecvSGE:    max(has.MaxRecvSGE, cfg.Cap.MaxRecvSGE),
		MaxInlineData: max(has.MaxInlineData, cfg.Cap.MaxInlineData),
	}
	return nil
}

// attach registers a QP with a CQ that it uses.
func (cq *kernelCQ) attach(q *kernelQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.qps.add(q.num, q)
}

func (cq *kernelCQ) detach(q *kernelQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.qps.remove(q.num)
}

// Num returns the QP number.
func (q *kernelQP) Num() uint32 { return q.num }

func (q *kernelQP) event(ev *AsyncEvent) {
	ev.QP = q.owner
	switch ev.Type {
	case EventQPFatal, EventQPReqErr, EventQPAccessErr:
		q.failLater(&eventError{ev.Type})
		ev.Err = q.Err()
	}
}

// eventError is the failure of a QP reported by an asynchronous event.
type eventError struct{ typ EventType }

// Error returns the text of ibv_event_type_str.
func (e *eventError) Error() string { return e.typ.String() }

// Query queries the kernel. The state is the provider's, unless the device has moved the QP to an
// error state.
func (q *kernelQP) Query() (QPAttr, error) {
	attr, err := q.ask()
	if err != nil {
		return QPAttr{}, err
	}
	if st := q.qpState(); st >= QPStateInit && st != QPStateErr {
		switch attr.State {
		case QPStateErr:
			q.fail(WCWRFlushErr)
		case QPStateSQE, QPStateSQD:
			q.state.CompareAndSwap(uint32(st), uint32(attr.State))
		}
	}
	q.known(&attr)
	return attr, nil
}

// ask queries the device.
func (q *kernelQP) ask() (QPAttr, error) {
	var attr ibverbs.QPAttr
	if err := q.c.Query(&attr); err != nil {
		return QPAttr{}, callError("ibv_query_qp", err)
	}
	return publicAttr(&attr), nil
}

// known fills in the attributes that the provider tracks itself.
func (q *kernelQP) known(attr *QPAttr) {
	attr.State = q.qpState()
	attr.CurState = attr.State
	attr.Cap = q.cap
}

// Destroy disconnects and flushes the QP and destroys it.
func (q *kernelQP) Destroy() error {
	q.failure.fire()
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.cut() {
		// If the device does not flush, the completions are lost, which is better than blocking
		// forever.
		ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
		_ = q.drainMarks(ctx)
		cancel()
	}
	err := q.remove()
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	return err
}

// cut stops a QP that is about to be destroyed. It reports whether there may be something to flush.
func (q *kernelQP) cut() bool {
	if q.qpState() == QPStateReset {
		q.barrier()
		return false
	}
	q.failLocked(q.ownEnd(EndClose))
	return true
}

// remove destroys the library's QP.
func (q *kernelQP) remove() error {
	// A QP attached to a group cannot be destroyed.
	for g := range q.groups {
		_ = q.mcast("ibv_detach_mcast", g.gid, g.lid, false)
	}
	err := callError("ibv_destroy_qp", q.c.Destroy())
	q.gone = true
	dropCookie(q.cookie)
	q.ctx.async.Sweep()
	q.ctx.counts.qp.remove()
	return err
}

// AttachMcast attaches the QP to a multicast group.
func (q *kernelQP) AttachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_attach_mcast", gid, lid, true); err != nil {
		return err
	}
	if q.groups == nil {
		q.groups = make(map[mcastGroup]struct{})
	}
	q.groups[mcastGroup{gid, lid}] = struct{}{}
	return nil
}

// DetachMcast undoes AttachMcast.
func (q *kernelQP) DetachMcast(gid GID, lid uint16) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	if err := q.mcast("ibv_detach_mcast", gid, lid, false); err != nil {
		return err
	}
	delete(q.groups, mcastGroup{gid, lid})
	return nil
}

// mcastGroup identifies a multicast group.
type mcastGroup struct {
	gid GID
	lid uint16
}

func (q *kernelQP) mcast(call string, gid GID, lid uint16, attach bool) error {
	return callError(call, q.c.Mcast(gid, lid, attach))
}
