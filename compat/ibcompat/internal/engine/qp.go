// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// qp is a queue pair (verbs.ProviderQP). The program's requests wait in sendSide and recvSide; the
// inner QP holds what goes over the wire.
type qp struct {
	dom            *domain
	ctx            *vcontext
	owner          *verbs.QP
	num            uint32
	cap            verbs.QPCap
	sigAll         bool
	sendCQ, recvCQ *cq
	pump           *pump  // of recvCQ
	place          uint64 // base of its IDs in the pump
	room           int    // completions that the inner QP can have outstanding
	depth          int    // depth of the inner send queue
	shown          atomic.Uint32

	mu      sync.Mutex // guards the following; taken before the locks of regions and CQs
	in      *verbs.QP
	slots   slots
	state   verbs.QPState
	access  verbs.AccessFlags // the program's access rights for the peer
	cause   error             // why the QP is in ERR
	blamed  []blame           // why requests failed, for Explain
	flushed chan struct{}     // closed once all requests are flushed; nil before ERR
	drop    bool              // drop requests without completions: the QP goes to RESET
	ending  sync.WaitGroup
	bound   bool // the receive slots are posted
	notify  bool // in SQD: report when the send queue is drained
	debt
	link
	sendSide
	recvSide

	scratch wire.Advert
	slotWR  [1]verbs.RecvWR
	slotSGL [1]verbs.SGE
}

// link is the state of one connection.
type link struct {
	id      *cm.ID // nil until the connection is established
	active  bool
	ord     int
	param   cm.ConnParam // set by the program
	managed bool         // connected by a connection manager
	hand    *hand        // of a QP that the program brings up, from RTR on; otherwise nil

	renewing bool // the inner QP is closed and being replaced, see renew

	posted int  // receive slots in the inner queue
	dead   bool // the inner QP has failed

	spoken bool              // our hello was sent
	heard  bool              // the peer's hello arrived
	peer   wire.Hello        //
	full   bool              // both sides execute one-sided operations natively
	rights verbs.AccessFlags // what the peer's QP allows us

	sent      uint64  // messages sent since the hello, including Immediate Data
	taken     uint64  // how many of them the peer has taken
	asked     uint64  // our last message with FlagAsk; its answer is outstanding if above taken
	want      uint64  // the peer must have taken this many messages before the program gets a completion it waits for,
	wantWrite written // and this Write must be confirmed
	got       uint64  // messages taken from the peer
	deaf      bool    // a message was not taken, so none after it counts
	owes      bool    // the peer awaits the answer to a FlagAsk
	urgent    bool    // the peer has nothing else to do meanwhile
	tell      bool    // our access rights are to be announced to the peer

	// an atomic of the peer failed: its Answer will be our last message, and later requests are not
	// executed
	refusing bool
	last     bool          // our last message has been sent
	peerLast bool          // the peer's last message arrived
	parted   chan struct{} // closed when nothing more will be sent or received; nil before ERR
	apart    bool          // parted is closed
	hurry    chan struct{} // closed to cut short every wait for the peer
	hurried  bool
}

func (p *domain) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	if cfg.Type != verbs.QPTypeRC || cfg.SRQ != nil {
		return nil, verbs.QPCap{}, verbs.ErrNotSupported
	}
	q := &qp{dom: p, ctx: p.ctx, owner: owner, cap: cfg.Cap, sigAll: cfg.SigAll}
	var err error
	if q.sendCQ, err = verbs.Own[*cq](cfg.SendCQ); err != nil {
		return nil, verbs.QPCap{}, err
	}
	if q.recvCQ, err = verbs.Own[*cq](cfg.RecvCQ); err != nil {
		return nil, verbs.QPCap{}, err
	}
	if err := q.create(); err != nil {
		return nil, verbs.QPCap{}, err
	}
	return q, q.cap, nil
}

// create allocates the inner resources.
func (q *qp) create() (err error) {
	attr, err := q.ctx.in.QueryDevice()
	if err != nil {
		return err
	}
	q.depth = min(attr.MaxQPWR, 2*q.cap.MaxSendWR+64)
	if q.slots, err = newSlots(q.dom.in, q.cap.MaxRecvWR+q.ctx.ownSlots(), q.cap.MaxSendWR); err != nil {
		return err
	}
	q.pump, q.room = q.recvCQ.pump, q.slots.recvs+q.depth
	if q.place, err = q.pump.attach(q, q.room); err != nil {
		return errors.Join(err, q.slots.mr.Close())
	}
	if q.in, err = q.inner(); err != nil {
		q.pump.detach(q.place, q.room)
		return errors.Join(err, q.slots.mr.Close())
	}
	if q.num, err = q.ctx.meet.enroll(q); err != nil {
		q.ctx.own(q.in, nil)
		err = errors.Join(err, q.in.Close())
		q.pump.detach(q.place, q.room)
		return errors.Join(err, q.slots.mr.Close())
	}
	q.sendSide.init(q.cap)
	q.adverts.device = &q.ctx.segments
	q.recvSide.init(q.cap)
	q.sendCQ.attach(q)
	q.recvCQ.attach(q)
	return nil
}

// inner creates an inner QP.
func (q *qp) inner() (*verbs.QP, error) {
	in, err := q.dom.in.CreateQP(verbs.QPConfig{SendCQ: q.pump.in, RecvCQ: q.pump.in, SigAll: true, Cap: verbs.QPCap{
		MaxSendWR: q.depth, MaxRecvWR: q.slots.recvs, MaxSendSGE: q.ctx.sge + 1, MaxRecvSGE: 1}})
	if err == nil {
		q.ctx.own(in, q.owner)
	}
	return in, err
}

func (q *qp) Num() uint32 { return q.num }

// KnownState implements verbs.ProviderQPState.
func (q *qp) KnownState() verbs.QPState { return verbs.QPState(q.shown.Load()) }

func (q *qp) enter(s verbs.QPState) {
	q.state = s
	q.shown.Store(uint32(s))
}

func (q *qp) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}

func (q *qp) Query() (verbs.QPAttr, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, err := verbs.QPAttr{PortNum: 1}, error(nil)
	if !q.renewing { // otherwise the inner QP is closed, and its replacement will have the same attributes
		a, err = q.in.Query()
	}
	a.State, a.CurState, a.AccessFlags, a.RNRRetry, a.Cap = q.state, q.state, q.access, q.peer.RNRRetries, q.cap
	if q.hand != nil {
		h := &q.hand.attr
		a.PathMTU, a.DestQPNum, a.RQPSN, a.SQPSN, a.AH = h.PathMTU, h.DestQPNum, h.RQPSN, h.SQPSN, h.AH
		a.MaxRdAtomic, a.MaxDestRdAtomic, a.MinRNRTimer = h.MaxRdAtomic, h.MaxDestRdAtomic, h.MinRNRTimer
		a.Timeout, a.RetryCnt, a.RNRRetry = h.Timeout, h.RetryCnt, h.RNRRetry
	}
	return a, err
}

// Modify makes the transitions of InfiniBand under its rules. The connection manager makes others,
// see established.
func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.mu.Lock()
	from, to := q.state, q.state
	if mask&verbs.QPAttrState != 0 {
		to = attr.State
	}
	if err := verbs.CheckModify(verbs.QPTypeRC, from, &attr, mask, 1); err != nil {
		q.mu.Unlock()
		return err
	}
	switch to {
	case verbs.QPStateErr:
		q.fail(verbs.EndModify)
		flushed := q.flushed
		q.mu.Unlock()
		<-flushed
		return nil
	case verbs.QPStateReset:
		q.mu.Unlock()
		return q.reset()
	}
	defer q.mu.Unlock()
	switch {
	case to == verbs.QPStateInit:
		if err := q.in.Modify(attr, mask&^verbs.QPAttrCurState); err != nil {
			return err
		}
		if mask&verbs.QPAttrAccessFlags != 0 {
			q.access = attr.AccessFlags
		}
		return q.begin()
	case to == verbs.QPStateRTR:
		return q.readyToReceive(&attr, mask)
	case from == verbs.QPStateRTR:
		return q.readyToSend(&attr, mask)
	}
	return q.run(to, &attr, mask)
}

// run modifies a QP in RTS or SQD. The caller holds mu.
func (q *qp) run(to verbs.QPState, attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	const fixed = verbs.QPAttrPort | verbs.QPAttrAV | verbs.QPAttrPKeyIndex | verbs.QPAttrMaxDestRdAtomic
	if mask&fixed != 0 {
		return fmt.Errorf("%w: over iWARP %v of a connection does not change", verbs.ErrNotSupported, mask&fixed)
	}
	if mask&verbs.QPAttrAccessFlags != 0 {
		if err := q.allow(attr.AccessFlags); err != nil {
			return err
		}
	}
	if q.hand != nil {
		h := &q.hand.attr
		for _, a := range []struct {
			bit      verbs.QPAttrMask
			to, from *uint8
		}{
			{verbs.QPAttrMinRNRTimer, &h.MinRNRTimer, &attr.MinRNRTimer},
			{verbs.QPAttrTimeout, &h.Timeout, &attr.Timeout},
			{verbs.QPAttrRetryCnt, &h.RetryCnt, &attr.RetryCnt}, {verbs.QPAttrRNRRetry, &h.RNRRetry, &attr.RNRRetry},
		} {
			if mask&a.bit != 0 {
				*a.to = *a.from
			}
		}
		if mask&verbs.QPAttrMaxRdAtomic != 0 {
			h.MaxRdAtomic = attr.MaxRdAtomic
			q.limitDepth()
		}
		q.hand.patience = patienceOf(h)
	}
	if to == verbs.QPStateSQD && q.state != to {
		q.notify = mask&verbs.QPAttrSQDAsyncNotify != 0 && attr.SQDAsyncNotify
	}
	q.enter(to)
	q.advance()
	return nil
}

// allow changes the peer's access rights. The caller holds mu.
func (q *qp) allow(access verbs.AccessFlags) error {
	if !q.renewing { // otherwise the next inner QP gets them
		if err := q.in.Modify(verbs.QPAttr{AccessFlags: access}, verbs.QPAttrAccessFlags); err != nil {
			return err
		}
	}
	q.access, q.tell = access, true
	return nil
}

// bind moves the QP to INIT, as the connection manager of the inner device requires.
func (q *qp) bind(below func(*verbs.QP) error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != verbs.QPStateReset {
		return &verbs.StateError{State: q.state, Why: "it is bound in RESET"}
	}
	if err := below(q.in); err != nil {
		return err
	}
	q.access = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	return q.begin()
}

// begin posts the receive slots once the inner QP is in INIT. The caller holds mu.
func (q *qp) begin() error {
	q.enter(verbs.QPStateInit)
	if q.bound {
		return nil
	}
	q.bound = true
	q.hurry = make(chan struct{})
	return q.fill()
}

// reset returns the QP to RESET and drops its requests. An inner QP that cannot be reset is
// replaced.
func (q *qp) reset() error {
	q.mu.Lock()
	if q.state == verbs.QPStateReset {
		q.mu.Unlock()
		return nil
	}
	if q.state != verbs.QPStateErr {
		q.drop = true
		q.fail(verbs.EndModify)
	}
	flushed := q.flushed
	q.mu.Unlock()
	<-flushed
	q.ending.Wait()
	q.mu.Lock()
	in := q.in
	q.mu.Unlock()
	if err := in.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState); err != nil {
		fresh, err := q.inner()
		if err != nil {
			return err
		}
		q.ctx.own(in, nil)
		if err := in.Close(); err != nil {
			return errors.Join(err, fresh.Close())
		}
		in = fresh
	}
	q.pump.work()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.in, q.link, q.cause, q.blamed, q.flushed, q.drop, q.bound, q.notify = in, link{}, nil, nil, nil, false, false,
		false
	q.waits, q.doubt = false, 0
	q.sendSide.clear()
	q.recvSide.clear()
	q.enter(verbs.QPStateReset)
	return nil
}

func (q *qp) Drain(ctx context.Context) error {
	q.mu.Lock()
	flushed := q.flushed
	q.mu.Unlock()
	if flushed == nil {
		return &verbs.StateError{State: verbs.QPStateReset, Why: "only a QP in ERR is drained"}
	}
	return queue.Await(ctx, flushed)
}

// Destroy closes the connection. When it returns, the device no longer uses any of the program's
// memory.
func (q *qp) Destroy() error {
	q.mu.Lock()
	q.fail(verbs.EndClose)
	flushed := q.flushed
	q.mu.Unlock()
	<-flushed
	q.ending.Wait()
	q.ctx.own(q.in, nil)
	q.ctx.meet.leave(q.num)
	err := q.in.Close()
	q.pump.detach(q.place, q.room)
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	q.ctx.events.Sweep()
	return errors.Join(err, q.slots.mr.Close())
}

// established starts a connection made by a connection manager: INIT -> RTS.
func (q *qp) established(id *cm.ID, active bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == verbs.QPStateInit {
		q.enter(verbs.QPStateRTS)
	}
	q.linked(id, active)
}

// linked starts a connection. The caller holds mu.
func (q *qp) linked(id *cm.ID, active bool) {
	q.id, q.active, q.tell = id, active, true
	q.limitDepth()
	q.advance()
}

// greet returns our hello.
func (q *qp) greet() wire.Hello {
	h := wire.Hello{Segments: uint8(q.ctx.sge), RNRTimer: q.param.MinRNRTimer,
		RNRRetries: uint8(max(0, q.param.RNRRetryCount)), SlotLen: uint32(q.slots.recvLen()),
		Slots: uint32(q.slots.recvs), Threshold: q.slots.eager, Window: window, Parts: uint8(q.ctx.parts()),
		QPNum: q.num}
	if q.param.RNRRetryCount == 0 {
		h.RNRRetries = cm.DefaultRNRRetryCount
	}
	if q.param.MinRNRTimer == 0 {
		h.RNRTimer = cm.DefaultMinRNRTimer
	}
	if q.hand != nil {
		h.RNRTimer = q.hand.attr.MinRNRTimer
	}
	h.Native = uint32(q.ctx.native)
	if q.ctx.silent { // siw needs the flag; other kernel devices cannot be told apart, and it does them no harm
		h.Flags = wire.HelloLax
	}
	return h
}

// closeTimeout is how long a closing connection waits for the peer's last message.
const closeTimeout = 3 * time.Second

// reasonTimeout is how long to wait for the inner connection to report why it ended.
const reasonTimeout = 200 * time.Millisecond
