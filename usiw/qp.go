// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// In ERR every request is flushed. flushed is closed once the connection, if there was one, has
// released all registered memory.
type qp struct {
	dev    *device
	ctx    *vcontext
	owner  *verbs.QP
	pd     *domain
	num    uint32
	cap    verbs.QPCap
	sigAll bool
	sendCQ *cq
	recvCQ *cq
	rq     *recvQueue    // the QP's own, or the queue of srq
	srq    *srq          // nil = none
	access atomic.Uint32 // verbs.AccessFlags: what the QP allows the peer to do
	shown  atomic.Uint32 // state, for KnownState

	mu      sync.Mutex    // guards the fields below; a cq's mu may be taken after it
	state   verbs.QPState // set by enter
	sq      sendQueue
	conn    *conn              // from RTS on
	cancel  context.CancelFunc // cancels the set-up in progress
	setup   chan struct{}      // closed when the set-up in progress ends; nil if there is none
	cause   error              // why the state is ERR
	blamed  []blame            // why requests failed
	unfit   error              // why a request in sq cannot be sent
	unfitAt uint64             // its position
	flushed chan struct{}      // closed when all requests posted before ERR are flushed; nil before ERR
	gone    bool               // Destroy was called
	last    bool               // EventQPLastWQEReached was sent: the QP takes no more receives from srq
}

func (p *domain) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	if p.dev.guard.Closed() {
		return nil, verbs.QPCap{}, verbs.ErrClosed
	}
	if cfg.Type != verbs.QPTypeRC {
		return nil, verbs.QPCap{}, fmt.Errorf("%w: iWARP has no %v QPs", verbs.ErrNotSupported, cfg.Type)
	}
	sendCQ, recvCQ, shared, err := ownQueues(&cfg)
	if err != nil {
		return nil, verbs.QPCap{}, err
	}
	if err := p.dev.qps.take(); err != nil {
		return nil, verbs.QPCap{}, err
	}
	q := &qp{dev: p.dev, ctx: p.ctx, owner: owner, pd: p, num: p.dev.takeQPN(), cap: cfg.Cap, sigAll: cfg.SigAll,
		sendCQ: sendCQ, recvCQ: recvCQ, srq: shared}
	q.sq.init(cfg.Cap)
	if shared != nil {
		q.rq = &shared.rq
		q.cap.MaxRecvWR, q.cap.MaxRecvSGE = 0, 0
	} else {
		q.rq = new(recvQueue)
		q.rq.init(p, cfg.Cap.MaxRecvWR, cfg.Cap.MaxRecvSGE)
	}
	q.sendCQ.attach(q)
	q.recvCQ.attach(q)
	return q, q.cap, nil
}

// ownQueues returns the queues in cfg. It returns an error if one belongs to another package.
func ownQueues(cfg *verbs.ProviderQPConfig) (send, recv *cq, shared *srq, err error) {
	if send, err = verbs.Own[*cq](cfg.SendCQ); err != nil {
		return nil, nil, nil, err
	}
	if recv, err = verbs.Own[*cq](cfg.RecvCQ); err != nil {
		return nil, nil, nil, err
	}
	if cfg.SRQ != nil {
		shared, err = verbs.Own[*srq](cfg.SRQ)
	}
	return send, recv, shared, err
}

func (q *qp) remoteAccess() verbs.AccessFlags { return verbs.AccessFlags(q.access.Load()) }

func (q *qp) Num() uint32 { return q.num }

// KnownState implements verbs.ProviderQPState.
func (q *qp) KnownState() verbs.QPState { return verbs.QPState(q.shown.Load()) }

// enter sets the state to s. The caller holds q.mu.
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
	attr := verbs.QPAttr{State: q.state, CurState: q.state, AccessFlags: q.remoteAccess(), PathMTU: verbs.MTU4096,
		PortNum: 1}
	if q.conn != nil {
		attr.MaxRdAtomic, attr.MaxDestRdAtomic = q.conn.ord, q.conn.ird
	}
	return attr, nil
}

func (q *qp) Modify(attr verbs.QPAttr, mask verbs.QPAttrMask) error {
	q.mu.Lock()
	from := q.state
	if mask&verbs.QPAttrCurState != 0 && attr.CurState != from {
		q.mu.Unlock()
		return &verbs.StateError{State: from, Why: "CUR_STATE says " + attr.CurState.String()}
	}
	to := from
	if mask&verbs.QPAttrState != 0 {
		to = attr.State
	}
	err := verbs.CheckTransition(from, to)
	if err == nil && mask&verbs.QPAttrPort != 0 && attr.PortNum != 1 {
		err = fmt.Errorf("%w: port_num %d: the device has port 1", verbs.ErrInvalid, attr.PortNum)
	}
	if err == nil && mask&verbs.QPAttrPKeyIndex != 0 && attr.PKeyIndex != 0 {
		err = fmt.Errorf("%w: pkey_index %d: the device has index 0", verbs.ErrInvalid, attr.PKeyIndex)
	}
	const remote = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if extra := attr.AccessFlags &^ remote; err == nil && mask&verbs.QPAttrAccessFlags != 0 && extra != 0 {
		err = fmt.Errorf("%w: qp_access_flags %v", verbs.ErrInvalid, extra)
	}
	if err == nil && to != from {
		switch to {
		case verbs.QPStateRTR, verbs.QPStateRTS:
			err = &verbs.StateError{State: from, Why: "on iWARP the connection manager moves a QP to " + to.String()}
		case verbs.QPStateSQD:
			err = fmt.Errorf("%w: state SQD", verbs.ErrNotSupported)
		}
	}
	if err != nil {
		q.mu.Unlock()
		return err
	}
	if mask&verbs.QPAttrAccessFlags != 0 {
		q.access.Store(uint32(attr.AccessFlags))
	}
	switch {
	case to == verbs.QPStateErr:
		q.mu.Unlock()
		q.fail(verbs.EndModify, nil)
		return nil
	case to == verbs.QPStateReset:
		q.mu.Unlock()
		return q.reset()
	case to != from:
		q.enter(to)
	}
	q.mu.Unlock()
	return nil
}

// fail moves the QP to ERR and waits until all posted requests are flushed. t is the Terminate to
// send; nil sends none.
func (q *qp) fail(cause error, t *termination) {
	q.mu.Lock()
	if c := q.conn; c != nil {
		q.mu.Unlock()
		if t != nil {
			cause = fmt.Errorf("%w: %w", cause, t.err())
		}
		c.fail(cause, t)
		<-c.flushed
		return
	}
	cancel, setup := q.cancel, q.setup
	if q.state != verbs.QPStateErr {
		q.enter(verbs.QPStateErr)
		q.cause = cause
		q.flushed = make(chan struct{})
		q.flush()
		close(q.flushed)
	}
	q.mu.Unlock()
	if setup != nil {
		cancel()
		<-setup
	}
}

// reset returns the QP to RESET and drops posted requests without completions.
func (q *qp) reset() error {
	q.mu.Lock()
	c, busy := q.conn, q.setup != nil
	q.mu.Unlock()
	if busy {
		return &verbs.StateError{State: verbs.QPStateInit, Why: "a connection is being set up"}
	}
	if c != nil {
		c.fail(verbs.EndModify, nil)
		<-c.flushed
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blamed, q.unfit = nil, nil
	q.conn, q.cause, q.flushed = nil, nil, nil
	q.enter(verbs.QPStateReset)
	q.last = false
	q.sq.clear()
	if q.srq == nil {
		q.rq.clear()
	}
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

func (q *qp) Destroy() error {
	q.mu.Lock()
	q.gone = true
	q.mu.Unlock()
	q.fail(verbs.EndClose, nil)
	q.sendCQ.detach(q)
	q.recvCQ.detach(q)
	q.dev.giveQPN(q.num)
	q.dev.qps.give()
	q.ctx.events.Sweep()
	return nil
}

// errSetup reports that a QP has a connection or is setting one up.
var errSetup = errors.New("a connection is being set up or exists")

// beginSetup reserves a QP in INIT for a connection. cancel is called to abort the attempt if the
// QP fails or is destroyed. The caller must call endSetup.
func (q *qp) beginSetup(cancel context.CancelFunc) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.gone:
		return verbs.ErrClosed
	case q.setup != nil || q.conn != nil:
		return &verbs.StateError{State: q.state, Why: errSetup.Error()}
	case q.state != verbs.QPStateInit:
		return &verbs.StateError{State: q.state, Why: "a connection needs a QP in INIT"}
	}
	q.cancel, q.setup = cancel, make(chan struct{})
	return nil
}

// endSetup releases the reservation.
func (q *qp) endSetup() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.setup)
	q.cancel, q.setup = nil, nil
}

// connect attaches a connection to the QP: INIT -> RTS.
func (q *qp) connect(c *conn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone || q.state != verbs.QPStateInit {
		return &verbs.StateError{State: q.state, Why: "the QP left INIT during connection set-up"}
	}
	// Under q.mu, so that a goroutine that finds the connection in the device's table cannot end it
	// before it starts.
	if !q.dev.track(c) {
		return verbs.ErrClosed
	}
	if err := q.dev.startWatch(c); err != nil {
		c.dead.Store(true)
		return err
	}
	q.conn = c
	q.enter(verbs.QPStateRTS)
	return nil
}

// PostSend appends requests to the send queue and sends as much as the socket accepts without
// waiting.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	if q.state != verbs.QPStateRTS && q.state != verbs.QPStateErr {
		state := q.state
		q.mu.Unlock()
		return 0, &verbs.StateError{State: state, Why: "sends can be posted from RTS on"}
	}
	n := 0
	var err error
	for ; n < len(wrs); n++ {
		if q.sq.full() {
			err = fmt.Errorf("%w: max_send_wr %d", verbs.ErrQueueFull, q.cap.MaxSendWR)
			break
		}
		if err = q.append(&wrs[n]); err != nil {
			break
		}
	}
	c := q.conn
	if q.state == verbs.QPStateErr {
		q.flushIfDone()
		c = nil
	}
	q.mu.Unlock()
	if c != nil && n > 0 {
		c.kick()
	}
	return n, err
}

// append copies a request into the send queue, which must have room. The caller holds q.mu.
func (q *qp) append(wr *verbs.SendWR) error {
	var bind *binding
	if wr.Opcode == verbs.WRBindMW {
		var err error
		if bind, err = newBinding(wr.Bind, wr.RKey); err != nil {
			return err
		}
	}
	e := q.sq.push(q.cap)
	e.id, e.op, e.flags, e.status = wr.ID, wr.Opcode, wr.Flags, verbs.WCSuccess
	if q.sigAll {
		e.flags |= verbs.SendSignaled
	}
	e.sent, e.answered = false, false
	e.raddr, e.rkey, e.invalidate = wr.RemoteAddr, wr.RKey, wr.InvalidateRKey
	e.sgl = append(e.sgl[:0], wr.SGL...)
	e.length = 0
	for i := range wr.SGL {
		e.length += wr.SGL[i].Length
	}
	switch wr.Opcode {
	case verbs.WRRDMAWriteWithImm:
		// The 32 bits go into the first 4 of the 8 bytes, as in other iWARP implementations with
		// 32-bit immediates.
		e.imm = uint64(wr.Imm) << 32
	case verbs.WRImmData:
		e.imm = wr.Imm64
	case verbs.WRAtomicFetchAndAdd:
		e.operands = operands{add: wr.Add}
	case verbs.WRMaskedAtomicFetchAndAdd:
		e.operands = operands{add: wr.Add, addMask: wr.AddMask}
	case verbs.WRAtomicCmpAndSwp:
		e.operands = operands{add: wr.Swap, addMask: ^uint64(0), compare: wr.Compare, compareMask: ^uint64(0)}
	case verbs.WRMaskedAtomicCmpAndSwp:
		e.operands = operands{add: wr.Swap, addMask: wr.SwapMask, compare: wr.Compare, compareMask: wr.CompareMask}
	case verbs.WRBindMW:
		e.bind = bind
	}
	e.inline = e.inline[:0]
	if wr.Flags&verbs.SendInline != 0 {
		// Inline data need a valid key too: in Go, unregistered memory may move.
		if !q.gather(e) {
			e.status = verbs.WCLocProtErr
		}
	}
	return nil
}

// gather copies a request's data into the queue entry; it reports false if a key does not permit
// the access.
func (q *qp) gather(e *sendEntry) bool {
	if cap(e.inline) == 0 {
		e.inline = make([]byte, 0, q.cap.MaxInlineData)
	}
	for i, s := range e.sgl {
		if s.Length == 0 {
			continue
		}
		r, mem, why := q.local(s.LKey, s.Addr, int(s.Length), 0)
		if why != accepted {
			if q.unfit == nil {
				q.unfit, q.unfitAt = elementError(why, i, s, 0), q.sq.tail-1
			}
			return false
		}
		at := len(e.inline)
		e.inline = e.inline[:at+len(mem)]
		regmem.Fetch(e.inline[at:], mem)
		r.exit()
	}
	return true
}

// local checks an access by a request of this QP. It refuses the keys of windows, which are for
// peers only.
func (q *qp) local(lkey uint32, addr uint64, n int, need verbs.AccessFlags) (*region, []byte, reject) {
	return q.localIn(q.pd, lkey, addr, n, need)
}

// localIn is local with an explicit domain pd: the domain of a shared receive queue may differ from
// the QP's.
func (q *qp) localIn(pd *domain, lkey uint32, addr uint64, n int, need verbs.AccessFlags) (*region, []byte, reject) {
	r, mem, why := q.dev.stags.checkIn(pd, q, lkey, addr, n, need)
	if why == accepted && r.parent != nil {
		r.exit()
		return nil, nil, rejectWindow
	}
	return r, mem, why
}

// PostRecv appends requests to the receive queue.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	state := q.state
	if state == verbs.QPStateReset {
		q.mu.Unlock()
		return 0, &verbs.StateError{State: state, Why: "receives can be posted from INIT on"}
	}
	// Under q.mu, so that a transition to ERR flushes the requests posted here.
	n, err := q.rq.post(wrs)
	if state == verbs.QPStateErr {
		q.flushIfDone()
	}
	q.mu.Unlock()
	return n, err
}

// flushIfDone flushes requests posted to a QP in ERR if flushed is closed. Until then, the shutdown
// of the connection flushes them. The caller holds q.mu.
func (q *qp) flushIfDone() {
	select {
	case <-q.flushed:
		q.flush()
	default:
	}
}

// flush completes all requests in order. Requests before the first one that is unfinished or failed
// complete normally. From there on, a failed request gets its status and the others are flushed,
// even if they were sent, because their outcome is unknown. The caller holds q.mu, and no access to
// memory of the QP's requests is in progress.
func (q *qp) flush() {
	for !q.sq.empty() && q.sq.oldest().done() && q.sq.oldest().status == verbs.WCSuccess {
		q.retireOldest()
	}
	for !q.sq.empty() {
		e := q.sq.oldest()
		status := e.status
		if status == verbs.WCSuccess {
			status = verbs.WCWRFlushErr
		}
		if q.unfit != nil && q.unfitAt == q.sq.head {
			q.blame(e.id, status, e.op.Completion(), q.unfit)
		}
		q.sendCQ.push(&verbs.WC{ID: e.id, Status: status, QPNum: q.num}, false)
		q.sq.pop()
	}
	q.sq.clear()
	q.unfit = nil
	if q.srq == nil {
		q.rq.flush(q)
	} else if !q.last && !q.gone {
		// The QP takes no more receives, and all that it took have completed (InfiniBand
		// Architecture volume 1, 11.6.3.2).
		q.last = true
		q.ctx.events.Post(verbs.AsyncEvent{Type: verbs.EventQPLastWQEReached, QP: q.owner})
	}
}

// retire completes the finished requests at the head of the send queue. The caller holds q.mu.
func (q *qp) retire() {
	for !q.sq.empty() && q.sq.oldest().done() {
		q.retireOldest()
	}
}

func (q *qp) retireOldest() {
	e := q.sq.oldest()
	if e.flags&verbs.SendSignaled != 0 {
		wc := verbs.WC{ID: e.id, Opcode: e.op.Completion(), QPNum: q.num}
		if e.awaitsAnswer() {
			wc.ByteLen = e.length
		}
		q.sendCQ.push(&wc, false)
	}
	q.sq.pop()
}
