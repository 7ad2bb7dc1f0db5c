// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/netdev"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// Manual bring-up: the program exchanges GIDs and QP numbers itself and moves the QP by Modify.
//
//	INIT  --Modify-->  RTR  --Modify-->  RTS  <--Modify-->  SQD
//	                    |                 |
//	                    +- calling or waiting, then connected, perhaps gone, whatever the state
//
// Each QP has a name, made of its GID and QP number. From RTR on, the QP with the smaller name
// calls the other repeatedly, and the other waits for that call on its device's listener. Neither
// Modify waits for the connection. In RTR messages of the peer are already taken, as on InfiniBand.
// In RTS requests can be posted, and they wait for the connection.
//
// The two QPs go through the following states, independently of the QP state. They start over until
// both have met:
//
//	           caller                                  waiter
//	looking    -                                       waits
//	trial      calls after a pause: a Request with     accepted a call (claim): Accept is running
//	           a Call. After the Reply it sends        or has made the connection; the caller's
//	           its hello                               hello has not arrived
//	met        the waiter's hello arrived              the caller's hello arrived
//
// A trial that fails is only an attempt (try): its inner QP is replaced if it was damaged, and both
// look again. Up to then only hellos were sent, so nothing of the program's is lost or executed
// twice. A QP that has met its peer stays so until it leaves RTR, RTS and SQD. If the connection
// breaks after the caller's hello arrived but before the waiter's did, the waiter considers the
// peer gone.
//
// A waiter accepts only a caller that names both QPs, calls from the address of the peer's GID, and
// knows a PSN that this QP also knows. The programs have exchanged their initial send PSNs: a QP
// knows the peer's from RTR on (rq_psn), and its own from RTS on (sq_psn). Two QPs in RTR share
// none, but they have nothing to exchange either, and connect as soon as one is in RTS. One match
// suffices: on InfiniBand a pair works in one direction if the PSNs of that direction match.
//
// Invariants:
//
//   - A caller that does not know all this always gets the same refusal, whatever exists here and
//     in whatever state. Refusing never blocks, so strangers cannot delay the peer.
//   - A QP has at most one trial. The peer makes one call at a time, so a new call means that the
//     peer has given up the trial, and it replaces the trial. Once the QPs have met there is none.
//   - A malformed hello, or anything else in its place, ends the trial but not the QP.
//
// As on InfiniBand, a QP detects only through its own requests that it has no peer. When the first
// request has waited for the time that timeout and retry_cnt allow (patience), it fails with
// WCRetryExcErr, the rest are flushed, and QP.Err returns a HandError. A QP without requests waits
// indefinitely. The same holds when the peer closes: a QP without requests keeps its state and
// fails with its next request.

// Name identifies a QP: the GID of its device and its QP number.
type Name struct {
	GID verbs.GID
	QPN uint32
}

// String returns, for example, "10.0.0.1 QP 0x00012a".
func (n Name) String() string { return fmt.Sprintf("%v QP 0x%06x", n.GID.Addr(), n.QPN) }

// Reasons of a HandError.
var (
	ErrWrongQP    = errors.New("the peer has no QP of this number that waits for this one")
	ErrPeerAbsent = errors.New("the peer has not come")
	ErrNoAnswer   = errors.New("the address does not answer")
)

// HandError reports why a QP that was brought up manually has no connection.
type HandError struct {
	Local, Remote Name
	Reason        error         // ErrWrongQP, ErrPeerAbsent or ErrNoAnswer
	After         time.Duration // time spent trying
	Cause         error         // error of the last attempt, or nil
}

// Error names both QPs and the reason.
func (e *HandError) Error() string {
	s := fmt.Sprintf("ibcompat: %v has no connection to %v after %v: %v", e.Local, e.Remote, e.After, e.Reason)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap returns Reason and Cause.
func (e *HandError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// hand is the manual bring-up of a QP, from RTR until RESET. The QP's mu guards the mutable part.
type hand struct {
	call     wire.Call // from this QP to the peer's, with the known PSNs
	from, to netdev.Address
	attr     verbs.QPAttr // attributes set by the program from RTR on
	dials    bool

	ctx  context.Context // done once the QP no longer looks for its peer
	stop context.CancelFunc

	why      miss   // why the last attempt failed
	trial    *trial // nil if there is none
	bad      error  // the violation that arrived in place of the peer's hello
	told     bool   // the program has been notified of a message that arrived in RTR
	patience time.Duration
	timer    *time.Timer   // runs while the first request waits for the connection; nil = not started
	left     int           // steps of patience left
	last     *trial        // the trial in progress when left reached 0
	again    chan struct{} // holds a token when it is worth calling again at once
	gone     error         // why the peer is gone; nil = it is not
	// why the first unfinished request is to fail with WCRetryExcErr; nil = it is not
	exceeded error
	lone     // for a QP that is its own peer
}

// trial is a call that may become the connection of a QP. For the waiter it starts when the call is
// accepted, for the caller when the previous trial ends.
type trial struct {
	ctx     context.Context // done when the trial is to end
	stop    context.CancelFunc
	over    chan struct{} // closed when the QP has met its peer, or is free again
	awaited bool          // another call waits for over
}

func (h *hand) newTrial() *trial {
	t := &trial{over: make(chan struct{})}
	t.ctx, t.stop = context.WithCancel(h.ctx)
	return t
}

// settled ends a trial that is still in progress: the QP has met its peer, or is free again. The
// caller holds mu.
func (h *hand) settled(t *trial) {
	if t != nil && h.trial == t {
		close(t.over)
		h.trial = nil
	}
}

// spurn ends the trial of a QP because the peer sent something other than a valid hello. The caller
// holds mu.
func (q *qp) spurn(err error) {
	q.dead = true // ignore whatever else it sends
	q.hand.bad = err
	if q.hand.trial != nil {
		q.hand.trial.stop()
	}
}

// leastPatience is the minimum time for which a QP looks for its peer, because setting up a
// connection takes longer than an acknowledgement on InfiniBand.
const leastPatience = 4 * time.Second

// patienceOf returns how long InfiniBand would retry: retry_cnt + 1 attempts, each of up to four
// times 4.096 us * 2^timeout (InfiniBand Architecture volume 1, 9.7.6.1.3). 0 = indefinitely.
func patienceOf(a *verbs.QPAttr) time.Duration {
	if a.Timeout == 0 {
		return 0
	}
	return max(leastPatience, 4*time.Duration(int(a.RetryCnt)+1)*(4096*time.Nanosecond<<a.Timeout))
}

// running reports whether messages of the peer are taken.
func (q *qp) running() bool {
	return q.state == verbs.QPStateRTS || q.state == verbs.QPStateRTR || q.state == verbs.QPStateSQD
}

// gone reports whether the peer of a QP brought up manually is gone.
func (q *qp) gone() bool { return q.hand != nil && q.hand.gone != nil }

// readyToReceive moves a QP from INIT to RTR. The caller holds mu and has called CheckModify.
func (q *qp) readyToReceive(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	h, err := q.newHand(attr)
	if err != nil {
		return err
	}
	if mask&verbs.QPAttrAccessFlags != 0 {
		if err := q.allow(attr.AccessFlags); err != nil {
			return err
		}
	}
	if h.self() {
		q.alone(h)
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	q.hand = h
	q.enter(verbs.QPStateRTR)
	if h.dials {
		h.trial = h.newTrial()
		q.ending.Go(func() { q.dial(h) })
	}
	return nil
}

// newHand checks the path to the peer.
func (q *qp) newHand(attr *verbs.QPAttr) (*hand, error) {
	if q.managed {
		return nil, &verbs.StateError{State: q.state, Why: "a connection manager is connecting it"}
	}
	below, err := q.ctx.in.QueryDevice()
	if err != nil {
		return nil, err
	}
	ah := &attr.AH
	to := ah.GRH.DGID.Addr()
	switch {
	case !ah.IsGlobal:
		return nil, invalid("a path without GRH: over iWARP the GID is the peer's address")
	case ah.PortNum != 1:
		return nil, invalid("port_num %d of the path: the device has port 1", ah.PortNum)
	case attr.PathMTU > verbs.MTU4096:
		return nil, invalid("path_mtu %v", attr.PathMTU)
	case attr.MaxDestRdAtomic > below.MaxQPRdAtom:
		return nil, invalid("max_dest_rd_atomic %d: the device has %d", attr.MaxDestRdAtomic, below.MaxQPRdAtom)
	case to.IsUnspecified() || to.IsMulticast():
		return nil, invalid("DGID %v, which is the address of no device", to)
	}
	q.ctx.dev.gids.refresh(q.ctx.in)
	from, err := q.ctx.dev.gids.row(int(ah.GRH.SGIDIndex))
	if err != nil {
		return nil, err
	}
	if from.IP.Is4() != to.Is4() {
		return nil, invalid("DGID %v cannot be reached from %v, the GID of sgid_index %d", to, from.IP,
			ah.GRH.SGIDIndex)
	}
	h := &hand{attr: *attr, from: from, to: netdev.Address{IP: to, NetDev: from.NetDev}, call: wire.Call{
		From:  wire.Name{GID: verbs.GIDFromAddr(from.IP), QPN: q.num},
		To:    wire.Name{GID: ah.GRH.DGID, QPN: attr.DestQPNum},
		ToPSN: wire.KnownPSN(attr.RQPSN)}, again: make(chan struct{}, 1)}
	if h.self() {
		return h, nil
	}
	h.dials = compareNames(h.call.From, h.call.To) < 0
	return h, q.ctx.meet.err
}

// compareNames orders names by GID, then by QP number.
func compareNames(a, b wire.Name) int {
	if c := netip.AddrFrom16(a.GID).Compare(netip.AddrFrom16(b.GID)); c != 0 {
		return c
	}
	return int(a.QPN) - int(b.QPN)
}

// readyToSend moves a QP from RTR to RTS. The caller holds mu.
func (q *qp) readyToSend(attr *verbs.QPAttr, mask verbs.QPAttrMask) error {
	h := q.hand
	below, err := q.ctx.in.QueryDevice()
	if err != nil {
		return err
	}
	if attr.MaxRdAtomic > below.MaxQPInitRdAtom {
		return invalid("max_rd_atomic %d: the device has %d", attr.MaxRdAtomic, below.MaxQPInitRdAtom)
	}
	if mask&verbs.QPAttrAccessFlags != 0 {
		if err := q.allow(attr.AccessFlags); err != nil {
			return err
		}
	}
	a := &h.attr
	a.SQPSN, a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = attr.SQPSN, attr.Timeout, attr.RetryCnt, attr.RNRRetry,
		attr.MaxRdAtomic
	if mask&verbs.QPAttrMinRNRTimer != 0 {
		a.MinRNRTimer = attr.MinRNRTimer
	}
	h.patience = patienceOf(a)
	h.call.FromPSN = wire.KnownPSN(a.SQPSN)
	queue.Signal(h.again) // a peer in RTR could not recognize this QP before
	q.enter(verbs.QPStateRTS)
	q.limitDepth()
	q.advance()
	return nil
}

// limitDepth sets how many Reads and atomics may be in progress. InfiniBand does not negotiate
// this; here no more are sent than the peer can answer concurrently.
func (q *qp) limitDepth() {
	if q.id != nil {
		q.ord, _ = q.id.Depths()
	}
	if q.self() {
		q.ord = q.hand.attr.MaxDestRdAtomic
	}
	if q.hand != nil && q.state != verbs.QPStateRTR {
		q.ord = min(q.ord, q.hand.attr.MaxRdAtomic)
	}
}

// param returns the parameters for the connection of a QP brought up manually.
func (h *hand) param(private wire.Call) cm.ConnParam {
	p := cm.ConnParam{ResponderResources: h.attr.MaxDestRdAtomic,
		PrivateData: (&wire.Greeting{Flags: wire.FlagHand, Private: private.Append(nil)}).Append(nil)}
	if p.ResponderResources == 0 {
		p.ResponderResources = cm.None
	}
	return p
}

// miss is why an attempt failed: the Reason and the Cause of a HandError.
type miss struct{ reason, cause error }

// dial calls the peer until they have met, or the QP no longer looks for it.
func (q *qp) dial(h *hand) {
	for gap := leastGap; ; gap = min(2*gap, longestGap) {
		q.mu.Lock()
		t := h.trial
		q.mu.Unlock()
		id, why := q.attempt(h)
		if id != nil && q.try(h, t, id) {
			return
		}
		t.stop()
		q.mu.Lock()
		if id == nil {
			h.why = why
		}
		h.trial, h.bad = h.newTrial(), nil
		q.mu.Unlock()
		wait := time.NewTimer(gap)
		select {
		case <-wait.C:
		case <-h.again:
			gap = leastGap / 2
		case <-h.ctx.Done():
			wait.Stop()
			return
		}
		wait.Stop()
		if !q.renewed(h) {
			return
		}
	}
}

// attempt calls the peer once. It returns an ID, or the reason why there is none.
func (q *qp) attempt(h *hand) (*cm.ID, miss) {
	port, ok := portOf(q.ctx.meet.base, h.call.To.QPN)
	if !ok {
		return nil, miss{ErrWrongQP, errors.New("the number names no port of a device")}
	}
	at := netip.AddrPortFrom(zoned(h.to), port).String()
	id, err := cm.Resolve(h.ctx, at, cm.Config{Context: q.ctx.in, Source: netip.AddrPortFrom(zoned(h.from), 0)})
	if err != nil {
		return nil, called(err)
	}
	q.mu.Lock()
	in, call := q.in, h.call
	q.mu.Unlock()
	if err := id.Connect(h.ctx, in, h.param(call)); err != nil {
		_ = id.Close() // the first error is the reason
		return nil, called(err)
	}
	g, err := wire.ParseGreeting(id.PrivateData())
	if err == nil && g.Flags&wire.FlagHand == 0 {
		err = wire.ErrNoGreeting
	}
	var back wire.Call
	if err == nil {
		back, err = wire.ParseCall(g.Private)
	}
	if err == nil && !call.Meets(&back) {
		err = fmt.Errorf("another QP has answered: %v", name(back.From))
	}
	if err != nil {
		_ = id.Close()
		return nil, miss{ErrWrongQP, &PeerError{Reason: err}}
	}
	return id, miss{}
}

func name(n wire.Name) Name { return Name{n.GID, n.QPN} }

// called interprets the error of a call.
func called(err error) miss {
	var rejected *cm.RejectedError
	switch {
	case errors.As(err, &rejected):
		g, bad := wire.ParseGreeting(rejected.PrivateData)
		if bad != nil || g.Flags&wire.FlagHand == 0 {
			if len(rejected.PrivateData) == 0 { // nothing received the call
				return miss{ErrPeerAbsent, err}
			}
			return miss{ErrWrongQP, &PeerError{Reason: wire.ErrNoGreeting}}
		}
		r, bad := wire.ParseRefusal(g.Private)
		if bad != nil {
			return miss{ErrWrongQP, &PeerError{Reason: bad}}
		}
		return miss{ErrWrongQP, &PeerError{Reason: errors.New(r.String()), Remote: true}}
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return miss{ErrPeerAbsent, err}
	}
	return miss{ErrNoAnswer, err}
}

// renew replaces the inner QP if an attempt damaged it.
func (q *qp) renew(h *hand) error {
	q.mu.Lock()
	in := q.in
	if in.State() == verbs.QPStateInit || q.hand != h || !q.running() {
		q.mu.Unlock()
		return nil
	}
	q.renewing = true
	q.mu.Unlock()
	q.ctx.own(in, nil)
	err := in.Close() // flushes its slots, and our hello if any
	q.pump.work()
	var fresh *verbs.QP
	if err == nil {
		fresh, err = q.inner()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.renewing = false
	if err != nil {
		q.posted = 0
		return err
	}
	q.in = fresh
	if q.state == verbs.QPStateErr {
		q.posted = 0
		q.settle()
		return nil
	}
	for q.flight.Len() > 0 { // a device may drop what a QP has not completed
		p := q.flight.Pop()
		q.landed(&p, verbs.WCWRFlushErr)
	}
	q.link = link{hand: q.hand, hurry: q.hurry}
	q.adverts.Clear()
	q.known = 0
	if err := fresh.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: q.access},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	if err := q.fill(); err != nil {
		return err
	}
	q.advance()
	return nil
}

// renewed calls renew. It reports false if that failed, which fails the QP.
func (q *qp) renewed(h *hand) bool {
	err := q.renew(h)
	if err == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hand == h {
		q.fail(err)
	}
	return false
}

// claim starts a trial for a call of the QP's peer. A trial in progress is ended first. It returns
// nil and the refusal if the call cannot be accepted.
func (q *qp) claim(h *hand) (*trial, wire.Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.hand != h || !q.running():
			return nil, wire.NoQP
		case q.heard || h.trial != nil && h.trial.awaited:
			return nil, wire.Taken
		case h.trial == nil:
			h.trial = h.newTrial()
			q.ending.Add(1) // for meet
			return h.trial, 0
		}
		t := h.trial
		t.awaited = true
		t.stop()
		q.mu.Unlock()
		select {
		case <-t.over:
		case <-h.ctx.Done():
		}
		q.mu.Lock()
	}
}

// meet accepts a call that has claimed the QP.
func (q *qp) meet(h *hand, t *trial, req *cm.Request) {
	defer q.ending.Done()
	defer t.stop()
	q.mu.Lock()
	in, call := q.in, h.call
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx, callLimit)
	id, err := req.Accept(ctx, in, h.param(call))
	cancel()
	if err != nil {
		q.mu.Lock()
		h.why = miss{ErrPeerAbsent, err}
		q.mu.Unlock()
	} else if q.try(h, t, id) {
		return
	}
	q.renewed(h)
	q.mu.Lock()
	h.settled(t)
	q.mu.Unlock()
}

// try uses the connection of a trial until it ends. It reports whether the search is over because
// the QP met its peer or left. Otherwise the QP is free again, and its inner QP may be damaged.
func (q *qp) try(h *hand, t *trial, id *cm.ID) (done bool) {
	defer t.stop()
	q.mu.Lock()
	if q.hand != h || !q.running() {
		q.mu.Unlock()
		_ = id.Close() // the QP left in the meantime
		return true
	}
	q.linked(id, h.dials)
	q.mu.Unlock()
	undecided := func() bool { return q.hand == h && q.id == id && !q.heard && q.running() }
	select {
	case <-id.Done():
	case <-t.ctx.Done():
		q.mu.Lock()
		spurned := undecided()
		q.mu.Unlock()
		if spurned {
			_ = id.Abort() // it is of no use to the other side either
		}
		<-id.Done()
	}
	q.pump.work() // completions that arrived before
	q.mu.Lock()
	if !undecided() {
		q.mu.Unlock()
		q.watch(id)
		_ = id.Close() // the reason has already been recorded
		return true
	}
	q.id = nil
	if h.why = (miss{ErrPeerAbsent, endOf(id.Err())}); h.bad != nil {
		h.why, h.bad = miss{ErrWrongQP, h.bad}, nil
	}
	q.mu.Unlock()
	_ = id.Abort()
	return false
}

// await checks whether the first request of a QP brought up manually can still complete. The
// request fails if the peer is gone; while it waits for a connection, its patience runs. The caller
// holds mu.
func (q *qp) await() {
	h := q.hand
	if h.gone != nil && q.state == verbs.QPStateRTS && q.reqs.Len() > 0 {
		// What the peer had taken is done, even if the device reports it later.
		if q.dead || q.next == 0 || !q.sure(q.reqs.At(0), q.base) {
			q.exceed(h.gone)
		}
		return
	}
	if h.timer != nil || q.heard || q.reqs.Len() == 0 || h.patience == 0 || q.state != verbs.QPStateRTS {
		return
	}
	began, step := time.Now(), h.patience/patienceSteps
	h.left = patienceSteps
	var timer *time.Timer
	timer = time.AfterFunc(step, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.hand != h || h.timer != timer || q.heard || !q.running() {
			return
		}
		if h.left--; h.left == 0 {
			h.last = h.trial
		}
		if h.left > 0 || h.last != nil && h.last == h.trial && -h.left < int(callLimit/step) {
			timer.Reset(step)
			return
		}
		e := &HandError{Local: name(h.call.From), Remote: name(h.call.To), Reason: h.why.reason, Cause: h.why.cause,
			After: time.Since(began).Round(time.Millisecond)}
		switch {
		case e.Reason != nil:
		case h.dials:
			e.Reason = ErrNoAnswer // the first call is still unanswered
		default:
			e.Reason = ErrPeerAbsent
		}
		q.exceed(e)
	})
	h.timer = timer
}

// Patience is counted in steps, each of which needs this process to be scheduled: unlike an
// adapter, an engine does not answer when the machine is too busy. When patience runs out, the
// attempt in progress is still awaited for as long as an answer may take.
const patienceSteps = 16

// rest stops the search for the peer.
func (h *hand) rest() {
	h.stop()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// exceed fails a QP brought up manually whose first request is not acknowledged.
func (q *qp) exceed(cause error) {
	q.hand.exceeded = fmt.Errorf("%w: %w", verbs.WCRetryExcErr, cause)
	if t := new(verbs.TerminateError); errors.As(cause, &t) { // a request was refused, see accuse
		q.fail(cause)
		return
	}
	q.fail(q.hand.exceeded)
}

// lose records that the peer of a QP brought up manually is gone. The caller holds mu.
func (q *qp) lose(cause error) {
	if q.hand.gone == nil {
		q.hand.gone = cause
	}
}

// unanswered sets the status of the first unfinished request to that of an unacknowledged one.
func (q *qp) unanswered() {
	for i := range q.begun() {
		if q.reqs.At(i).status != verbs.WCSuccess {
			return // the failed request is known
		}
	}
	for i := range q.reqs.Len() {
		r := q.reqs.At(i)
		if i < q.next && !r.waiting && !r.cut && q.sure(r, q.base+uint64(i)) {
			continue
		}
		if r.status == verbs.WCSuccess {
			r.status, r.reason = verbs.WCRetryExcErr, q.hand.exceeded
		}
		return
	}
}
