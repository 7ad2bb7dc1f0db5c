// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// DefaultCQE is the capacity of a CQ if CQConfig.CQE is 0.
const DefaultCQE = 256

// CQConfig describes a completion queue.
type CQConfig struct {
	// CQE is the minimum capacity in completions (0 = DefaultCQE). The device may provide more.
	CQE int
	// Channel receives the CQ's events (nil = a private channel, as CQ.Wait requires).
	Channel *CompChannel
	// CompVector is the completion vector (comp_vector of ibv_create_cq(3)), 0 to
	// DeviceAttr.NumCompVectors - 1. It selects the device's interrupt for the events of the CQ,
	// and thus the processor that handles them. Programs with several busy CQs should spread them
	// over the vectors.
	CompVector int
}

// CQ is a completion queue. All methods may be called concurrently; concurrent Polls share the
// completions.
type CQ struct {
	node   lifetime.Node
	ctx    *Context
	p      ProviderCQ
	direct directPoller     // p if it can be polled without entering node, or nil
	drive  ProviderCQDriver // p if it is a driver, or nil
	sleeps ProviderCQDriver // what Wait sleeps in: drive, or the CQ that p wraps; nil = Wait sleeps on ch
	spin   time.Duration    // how long Wait polls before it sleeps
	ch     ProviderCompChannel
	owned  bool         // ch is private to this CQ
	given  *CompChannel // the channel that ch belongs to, unless owned
	room   atomic.Int64 // last known capacity in completions

	waiting chan struct{} // holds a token while a goroutine sleeps in Wait
	closed  chan struct{} // closed by Close

	// While goroutines stand by in Wait, any completion must wake the one that sleeps in
	// WaitSolicited. Each side sets its own field before it reads the other's, so at least one of
	// them arms the CQ for every completion.
	picky  atomic.Bool  // the sleeping goroutine is in WaitSolicited
	others atomic.Int32 // goroutines standing by in Wait
}

// directPoller is a provider's CQ that can be polled without entering the node. Its own lock makes
// Close wait for polls in progress: Destroy acquires the lock and never releases it.
type directPoller interface {
	// canPollDirect reports whether this CQ supports it.
	canPollDirect() bool
	// pollDirect is Poll. If ok is false it did nothing, and the caller must poll the ordinary way,
	// which also detects a closed CQ.
	pollDirect(wcs []WC) (n int, ok bool, err error)
}

// CreateCQ creates a completion queue (ibv_create_cq(3)).
//
// A CQ must have room for every request that may complete before it is polled. On overflow,
// completions are lost: the context gets an EventCQErr, the QPs of the CQ enter the error state,
// and Poll returns the remaining completions and then an error that Is [ErrCQOverflow].
func (c *Context) CreateCQ(cfg CQConfig) (*CQ, error) {
	if err := c.enter("CreateCQ"); err != nil {
		return nil, err
	}
	defer c.node.Exit()
	cq, err := c.createCQ(cfg)
	return cq, opError("CreateCQ", c.dev.Name(), err)
}

func (c *Context) createCQ(cfg CQConfig) (*CQ, error) {
	cqe := cfg.CQE
	if cqe == 0 {
		cqe = DefaultCQE
	}
	if cqe < 0 {
		return nil, invalid("CQE %d", cqe)
	}
	if err := limit("max_cqe", cqe, c.attr.MaxCQE); err != nil {
		return nil, err
	}
	if n := max(c.attr.NumCompVectors, 1); cfg.CompVector < 0 || cfg.CompVector >= n {
		return nil, invalid("completion vector %d: the device has vectors 0 to %d", cfg.CompVector, n-1)
	}
	cq := &CQ{ctx: c, waiting: make(chan struct{}, 1), closed: make(chan struct{})}
	parents := []*lifetime.Node{&c.node}
	if ch := cfg.Channel; ch != nil {
		if ch.ctx != c {
			return nil, ErrForeign
		}
		if ch.released.Load() || !ch.node.Enter() {
			return nil, ErrClosed
		}
		defer ch.node.Exit()
		cq.ch, cq.given = ch.p, ch
		parents = append(parents, &ch.node)
	} else {
		var err error
		if cq.ch, err = c.p.CreateCompChannel(); err != nil {
			return nil, err
		}
		cq.owned = true
	}
	var err error
	if cq.p, err = c.p.CreateCQ(cq, cqe, cq.ch, cfg.CompVector); err != nil {
		return nil, errors.Join(err, cq.closeChannel())
	}
	if d, ok := cq.p.(directPoller); ok && d.canPollDirect() {
		cq.direct = d
	} else if b := newBypassPoller(cq); b != nil {
		cq.direct = b
	}
	cq.room.Store(int64(cq.p.CQE()))
	cq.drive, _ = cq.p.(ProviderCQDriver) // if p wraps a driver, polling p drives it
	if d, ok := Ability[ProviderCQDriver](cq.p); ok {
		cq.sleeps, cq.spin = d, d.Spin()
	}
	if err := cq.node.Init("CQ", cq.Close, parents...); err != nil {
		return nil, errors.Join(err, cq.p.Destroy(), cq.closeChannel())
	}
	return cq, nil
}

func (cq *CQ) closeChannel() error {
	if !cq.owned {
		return nil
	}
	return cq.ch.Close()
}

// Context returns the context of the CQ.
func (cq *CQ) Context() *Context { return cq.ctx }

// Provider returns the provider's CQ object.
func (cq *CQ) Provider() ProviderCQ { return cq.p }

// CQE returns the capacity of the queue in completions, at least as large as requested.
func (cq *CQ) CQE() int { return cq.p.CQE() }

// Poll moves up to len(wcs) completions into wcs, oldest first, and returns their number
// (ibv_poll_cq(3)). It does not wait, and on success does not allocate. Once the CQ has overflowed
// and is empty, the error Is [ErrCQOverflow].
func (cq *CQ) Poll(wcs []WC) (int, error) {
	if cq.direct != nil {
		if n, ok, err := cq.direct.pollDirect(wcs); ok {
			if err != nil {
				err = opError("CQ.Poll", cq.ctx.dev.Name(), err)
			}
			return n, err
		}
	}
	if !cq.node.Enter() {
		return 0, opError("CQ.Poll", cq.ctx.dev.Name(), ErrClosed)
	}
	n, err := cq.p.Poll(wcs)
	if n == 0 && err == nil && cq.drive != nil && len(wcs) > 0 {
		cq.drive.Drive()
		n, err = cq.p.Poll(wcs)
	}
	cq.node.Exit()
	if err != nil {
		return n, opError("CQ.Poll", cq.ctx.dev.Name(), err)
	}
	return n, nil
}

// take is Poll without driving the device.
func (cq *CQ) take(op string, wcs []WC) (int, error) {
	if !cq.node.Enter() {
		return 0, opError(op, cq.ctx.dev.Name(), ErrClosed)
	}
	n, err := cq.p.Poll(wcs)
	cq.node.Exit()
	return n, opError(op, cq.ctx.dev.Name(), err)
}

// pollFor polls for up to d.
func (cq *CQ) pollFor(ctx context.Context, wcs []WC, d time.Duration) (int, error) {
	for start := time.Now(); time.Since(start) < d && ctx.Err() == nil; {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		runtime.Gosched()
	}
	return 0, nil
}

// ReqNotify arms the CQ (ibv_req_notify_cq(3)): the next completion sends one event to its channel.
// With solicitedOnly, only a failed completion or one that the peer marked as solicited does.
// Completions already in the queue send no event: poll once more after arming.
func (cq *CQ) ReqNotify(solicitedOnly bool) error {
	if !cq.node.Enter() {
		return opError("CQ.ReqNotify", cq.ctx.dev.Name(), ErrClosed)
	}
	defer cq.node.Exit()
	return opError("CQ.ReqNotify", cq.ctx.dev.Name(), cq.p.ReqNotify(solicitedOnly))
}

// Wait moves completions into wcs as Poll does. If the queue is empty, it arms the CQ, polls again,
// and sleeps until a completion arrives. The CQ must have a private channel; otherwise the error Is
// [ErrSharedChannel]. The error Is ctx.Err() when ctx is done and [ErrClosed] when the CQ is
// closed. If several goroutines wait, each completion is returned to one of them.
//
// Cancelling ctx withdraws nothing: the requests stay posted, their memory belongs to the device
// until they complete, and a later Wait or Poll returns their completions. To reclaim the memory,
// call [QP.Drain]. A send request without [SendSignaled] generates no completion on success, so it
// never ends a Wait.
func (cq *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	return cq.wait(ctx, "CQ.Wait", wcs, false)
}

// WaitSolicited is Wait for programs that need not wake for every completion: it sleeps until a
// receive completes whose sender set SendSolicited, or until a request fails (solicited_only of
// ibv_req_notify_cq(3)). Other completions do not wake it; it returns those that are already in the
// queue when it is called or when it wakes.
//
// Send requests of this program wake it only if they fail. Devices that cannot distinguish
// solicited receives, such as kernel siw, wake it for every receive. If Wait or ReqNotify armed the
// CQ for any completion earlier, the next one wakes it, once. While another goroutine is in Wait on
// the same CQ, any completion can therefore wake either of them.
func (cq *CQ) WaitSolicited(ctx context.Context, wcs []WC) (int, error) {
	return cq.wait(ctx, "CQ.WaitSolicited", wcs, true)
}

func (cq *CQ) wait(ctx context.Context, op string, wcs []WC, solicitedOnly bool) (int, error) {
	if !cq.owned {
		return 0, opError(op, cq.ctx.dev.Name(), ErrSharedChannel)
	}
	if len(wcs) == 0 {
		return 0, opError(op, cq.ctx.dev.Name(), invalid("no room for a completion"))
	}
	if n, err := cq.take(op, wcs); n > 0 || err != nil {
		return n, err
	}
	if cq.spin > 0 && !solicitedOnly {
		if n, err := cq.pollFor(ctx, wcs, cq.spin); n > 0 || err != nil {
			return n, err
		}
	}
	// Only one goroutine arms the CQ and sleeps. A second one would miss completions that arrive
	// after the first wakes, because an event disarms the CQ.
	select {
	case cq.waiting <- struct{}{}:
	default:
		if n, err := cq.standBy(ctx, op, wcs, solicitedOnly); n > 0 || err != nil {
			return n, err
		}
	}
	defer func() { <-cq.waiting }()
	if solicitedOnly {
		cq.picky.Store(true)
		defer cq.picky.Store(false)
	}
	for {
		if n, err := cq.sleep(ctx, wcs, solicitedOnly && cq.others.Load() == 0); n > 0 || err != nil {
			return n, opError(op, cq.ctx.dev.Name(), err)
		}
		if n, err := cq.take(op, wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

// standBy waits until no other goroutine sleeps, and then takes its place. It may instead return
// completions or an error.
func (cq *CQ) standBy(ctx context.Context, op string, wcs []WC, solicitedOnly bool) (int, error) {
	if !solicitedOnly {
		cq.others.Add(1)
		defer cq.others.Add(-1)
		if cq.picky.Load() {
			if err := cq.ReqNotify(false); err != nil {
				return 0, err
			}
			if n, err := cq.take(op, wcs); n > 0 || err != nil { // what arrived before the CQ was armed
				return n, err
			}
		}
	}
	select {
	case cq.waiting <- struct{}{}:
		return 0, nil
	case <-ctx.Done():
		return 0, opError(op, cq.ctx.dev.Name(), ctx.Err())
	case <-cq.closed:
		return 0, opError(op, cq.ctx.dev.Name(), ErrClosed)
	}
}

// sleep arms the CQ and waits until there may be a completion. It may return completions that were
// already in the queue.
func (cq *CQ) sleep(ctx context.Context, wcs []WC, solicitedOnly bool) (n int, err error) {
	if !cq.node.Enter() {
		return 0, ErrClosed
	}
	if cq.sleeps != nil {
		err = cq.sleeps.Sleep(ctx, solicitedOnly)
		cq.node.Exit()
		return 0, err
	}
	if err = cq.p.ReqNotify(solicitedOnly); err == nil {
		n, err = cq.p.Poll(wcs)
	}
	cq.node.Exit()
	if n == 0 && err == nil {
		_, err = cq.ch.Wait(ctx)
	}
	return n, err
}

// Close destroys the CQ (ibv_destroy_cq(3)) and unblocks every Wait. It is idempotent and may be
// called on nil. The error Is [ErrBusy] while QPs use the CQ.
func (cq *CQ) Close() error {
	if cq == nil {
		return nil
	}
	first, err := cq.node.BeginClose()
	if !first || err != nil {
		return opError("CQ.Close", cq.ctx.dev.Name(), err)
	}
	close(cq.closed)
	err = cq.closeChannel()
	cq.node.Drain(0)
	err = errors.Join(err, cq.p.Destroy())
	cq.node.End()
	if cq.given != nil && cq.given.released.Load() {
		err = errors.Join(err, cq.given.closeUnused())
	}
	return opError("CQ.Close", cq.ctx.dev.Name(), err)
}

// Resize changes the capacity to at least cqe completions (ibv_resize_cq(3)). Completions in the
// queue are preserved; the device refuses a capacity below their number. The error Is
// [ErrNotSupported] on devices that cannot resize a CQ, and [ErrLimit] above max_cqe.
func (cq *CQ) Resize(cqe int) error {
	const op = "CQ.Resize"
	if !cq.node.Enter() {
		return opError(op, cq.ctx.dev.Name(), ErrClosed)
	}
	defer cq.node.Exit()
	r, ok := Ability[ProviderCQResizer](cq.p)
	switch {
	case !ok:
		return opError(op, cq.ctx.dev.Name(), fmt.Errorf("%w: resizing a CQ", ErrNotSupported))
	case cqe <= 0:
		return opError(op, cq.ctx.dev.Name(), invalid("CQE %d", cqe))
	case cqe > cq.ctx.attr.MaxCQE:
		return opError(op, cq.ctx.dev.Name(), limit("max_cqe", cqe, cq.ctx.attr.MaxCQE))
	}
	err := r.Resize(cqe)
	cq.room.Store(int64(cq.p.CQE()))
	return opError(op, cq.ctx.dev.Name(), err)
}
