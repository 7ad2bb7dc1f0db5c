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

// QPs that are brought up by hand: the program exchanges GIDs and numbers by itself and moves the
// QP by Modify.
//
//	INIT  --Modify-->  RTR  --Modify-->  RTS  <--Modify-->  SQD
//	                    |                 |
//	                    +- calling or waiting, then connected, then perhaps gone: beside the state
//
// Both QPs have a name, which is the GID and the number. From RTR on the one with the smaller name
// calls the other one, again and again, and that one waits for it at its device's rendezvous.
// Neither Modify waits for that. In RTR messages of the peer are taken already, as on InfiniBand;
// in RTS requests are posted, and wait for the connection.
//
// The rendezvous of the two, beside the state; it begins again at the top until it has come to the
// end:
//
//	           caller                                        waiter
//	looking                                                  waits
//	trial      calls after a pause: a Request with a Call;   has taken a call (claim): Accept runs, or has made the
//	           the Reply has come, and it says hello         connection, and the caller's hello has not come
//	met        the waiter's hello has come                   the caller's hello has come
//
// A trial that ends is nothing but an attempt (try): its inner QP is replaced if it is spoilt, and
// both look again. Only hellos have been sent by then, so nothing of the program's is lost or done
// twice. Whoever has met stays so until the QP leaves RTR, RTS and SQD. If the caller's hello has
// come and the waiter's has not when the connection breaks, the waiter takes the peer for gone.
//
// Whom a waiter takes: the caller must name both QPs, call from the address of the peer's GID, and
// know one PSN that this QP knows too. The programs have told each other the PSNs with which they
// send: a QP knows the peer's from RTR on (rq_psn), and its own from RTS on (sq_psn). Two that are
// both in RTR have none in common; they have nothing to say to each other either, and are connected
// as soon as one is in RTS. One that is the same is enough: on InfiniBand a pair works in one
// direction if the PSNs of that one match.
//
// Invariants:
//
//   - Whoever does not know all that has one and the same refusal, whatever exists here and in
//     whatever state. Refusing waits for nobody, so strangers do not keep the peer waiting.
//   - At most one trial of a QP is under way. The peer calls once at a time; so a new call of its
//     says that the trial is over on its side, and takes its place. Once met there is none.
//   - A hello that is none, or anything else before it, ends the trial and not the QP.
//
// As on InfiniBand a QP learns only by its own requests that there is no peer: when the first has
// waited as long as timeout and retry_cnt say (patience), it fails with WCRetryExcErr, the rest is
// flushed, and QP.Err has a HandError. A QP without requests waits for ever. The end of the peer is
// the same: a QP that has no requests then stays as it is, and fails with its next one.

// Name is what a QP is called: the GID of its device and its number.
type Name struct {
	GID verbs.GID
	QPN uint32
}

// String returns for example "10.0.0.1 QP 0x00012a".
func (n Name) String() string { return fmt.Sprintf("%v QP 0x%06x", n.GID.Addr(), n.QPN) }

// Reasons of a HandError.
var (
	ErrWrongQP    = errors.New("the peer has no QP of this number that waits for this one")
	ErrPeerAbsent = errors.New("the peer has not come")
	ErrNoAnswer   = errors.New("the address does not answer")
)

// HandError says why a QP that was brought up by hand has got no connection.
type HandError struct {
	Local, Remote Name
	Reason        error         // ErrWrongQP, ErrPeerAbsent or ErrNoAnswer
	After         time.Duration // how long it was tried
	Cause         error         // what the last attempt has met with; nil = nothing
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

// hand is what belongs to one life of a QP by hand, from RTR to RESET. The mutable part is guarded
// by the QP's mu.
type hand struct {
	call     wire.Call // from this QP to the peer's, with the PSNs that it knows
	from, to netdev.Address
	attr     verbs.QPAttr // what the program has set from RTR on
	dials    bool

	ctx  context.Context // ends when the QP does not look for its peer any more
	stop context.CancelFunc

	why      miss   // what the last attempt has met with
	trial    *trial // nil = none is under way
	bad      error  // what the peer has said in place of its hello
	told     bool   // the program has been told that a message has arrived in RTR
	patience time.Duration
	timer    *time.Timer   // runs while the first request waits for the connection; nil = not yet
	left     int           // steps of patience that are left
	last     *trial        // the one that was under way when there were none
	again    chan struct{} // holds a token when a call is worth while at once
	gone     error         // why there is no peer any more; nil = there is
	// the first request that is not done is to fail with WCRetryExcErr, for this reason; nil = none
	// is
	exceeded error
	lone     // of a QP that is its own peer
}

// trial is a call that may become the connection of a QP: for the waiter since it has been taken,
// for the caller since the end of the one before.
type trial struct {
	ctx     context.Context // ends the trial
	stop    context.CancelFunc
	over    chan struct{} // closed when the QP has met its peer, or is free again
	awaited bool          // another call waits for that
}

func (h *hand) newTrial() *trial {
	t := &trial{over: make(chan struct{})}
	t.ctx, t.stop = context.WithCancel(h.ctx)
	return t
}

// settled ends a trial, if it is still under way: the QP has met its peer, or is free again. The
// caller holds mu.
func (h *hand) settled(t *trial) {
	if t != nil && h.trial == t {
		close(t.over)
		h.trial = nil
	}
}

// spurn ends the trial of a QP because of what the peer has said in place of its hello. The caller
// holds mu.
func (q *qp) spurn(err error) {
	q.dead = true // nothing more of it is heard
	q.hand.bad = err
	if q.hand.trial != nil {
		q.hand.trial.stop()
	}
}

// leastPatience is how long a QP looks for its peer at least: a connection takes longer than an
// acknowledgement on InfiniBand.
const leastPatience = 4 * time.Second

// patienceOf is how long InfiniBand tries: retry_cnt times more than once, and each time up to four
// times 4.096 us times 2 to the power of timeout (InfiniBand Architecture volume 1, 9.7.6.1.3). 0 =
// for ever.
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

// gone reports whether the peer of a QP by hand has gone.
func (q *qp) gone() bool { return q.hand != nil && q.hand.gone != nil }

// readyToReceive moves a QP from INIT to RTR. The caller holds mu, and has checked what CheckModify
// does.
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

// newHand checks where the peer is to be.
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

// compareNames orders names: by GIDs, then by numbers.
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
	queue.Signal(h.again) // a peer in RTR could not know this QP before
	q.enter(verbs.QPStateRTS)
	q.limitDepth()
	q.advance()
	return nil
}

// limitDepth sets how many Reads and atomics may be in progress. On InfiniBand that is not
// negotiated; more than the peer answers at a time are not sent.
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

// param is what the connection of a QP by hand is made with.
func (h *hand) param(private wire.Call) cm.ConnParam {
	p := cm.ConnParam{ResponderResources: h.attr.MaxDestRdAtomic,
		PrivateData: (&wire.Greeting{Flags: wire.FlagHand, Private: private.Append(nil)}).Append(nil)}
	if p.ResponderResources == 0 {
		p.ResponderResources = cm.None
	}
	return p
}

// miss is why an attempt has failed: the Reason and the Cause of a HandError.
type miss struct{ reason, cause error }

// dial calls the peer until it answers, or the QP has no use for it any more.
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

// attempt calls the peer once. It returns an ID, or why there is none.
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
		_ = id.Close() // the other error is the reason
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

// called says what the error of a call means.
func called(err error) miss {
	var rejected *cm.RejectedError
	switch {
	case errors.As(err, &rejected):
		g, bad := wire.ParseGreeting(rejected.PrivateData)
		if bad != nil || g.Flags&wire.FlagHand == 0 {
			if len(rejected.PrivateData) == 0 { // nobody has seen the call
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

// renew replaces the inner QP if an attempt has spoilt it.
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
	err := in.Close() // its slots are flushed, and a hello of ours
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

// renewed is renew. It reports false if that has failed, and with it the QP.
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

// claim takes a QP for a call of its peer; nil if it cannot have one. A trial that is under way
// ends before.
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

// try uses the connection of a trial. It returns at the connection's end, and reports whether the
// QP has done with its search: it has met its peer, or left. Otherwise the QP is free again; its
// inner QP may be spoilt.
func (q *qp) try(h *hand, t *trial, id *cm.ID) (done bool) {
	defer t.stop()
	q.mu.Lock()
	if q.hand != h || !q.running() {
		q.mu.Unlock()
		_ = id.Close() // the QP has left meanwhile
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
	q.pump.work() // what has arrived before
	q.mu.Lock()
	if !undecided() {
		q.mu.Unlock()
		q.watch(id)
		_ = id.Close() // the end has its reason already
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

// await looks whether the first request of a QP by hand can still be done: it fails if the peer has
// gone, and while it waits for the connection its time is counted. The caller holds mu.
func (q *qp) await() {
	h := q.hand
	if h.gone != nil && q.state == verbs.QPStateRTS && q.reqs.Len() > 0 {
		// What the peer has taken before is done when the device says so too.
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
			e.Reason = ErrNoAnswer // the first call has not come back
		default:
			e.Reason = ErrPeerAbsent
		}
		q.exceed(e)
	})
	h.timer = timer
}

// Patience is counted in steps, in each of which this process has had its turn: adapters answer
// however busy the machines are, engines do not. The attempt that is under way when it is used up
// is waited for, as long as an answer may take.
const patienceSteps = 16

// rest ends the search for the peer.
func (h *hand) rest() {
	h.stop()
	if h.timer != nil {
		h.timer.Stop()
	}
}

// exceed ends a QP by hand whose first request gets no acknowledgement.
func (q *qp) exceed(cause error) {
	q.hand.exceeded = fmt.Errorf("%w: %w", verbs.WCRetryExcErr, cause)
	if t := new(verbs.TerminateError); errors.As(cause, &t) { // a request has been refused, see accuse
		q.fail(cause)
		return
	}
	q.fail(q.hand.exceeded)
}

// lose notes that the peer of a QP by hand has gone. The caller holds mu.
func (q *qp) lose(cause error) {
	if q.hand.gone == nil {
		q.hand.gone = cause
	}
}

// unanswered gives the first request that is not done the status of one that has not been
// acknowledged.
func (q *qp) unanswered() {
	for i := range q.begun() {
		if q.reqs.At(i).status != verbs.WCSuccess {
			return // it is known which one has failed
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
