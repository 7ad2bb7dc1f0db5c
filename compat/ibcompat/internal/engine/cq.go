// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// cq is a completion queue (verbs.ProviderCQDriver). It holds the completions of the program's
// requests, all of which the engine generates. A pump polls the inner completions.
type cq struct {
	ctx   *vcontext
	owner *verbs.CQ
	ch    *channel
	pump  *pump // of the QPs whose receives complete here

	pumps atomic.Pointer[[]*pump] // of all QPs that complete here; written under mu

	mu       sync.Mutex // taken before a channel's mu only; guards the following
	size     int
	ring     queue.Ring[verbs.WC]
	arm      queue.Arm
	overflow bool
	gone     bool
	qps      map[*qp]struct{}
	asleep   bool // a goroutine sleeps in a pump for this CQ; wake ends the sleep
	wake     context.CancelFunc

	nap struct { // the context for sleeping, reused while the program's context is the same; guarded by the pump's seat
		of, ctx context.Context
		cancel  context.CancelFunc
	}
}

func (c *vcontext) CreateCQ(owner *verbs.CQ, cqe int, pch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	ch, err := verbs.Own[*channel](pch)
	if err != nil {
		return nil, err
	}
	q := &cq{ctx: c, owner: owner, ch: ch, size: cqe, qps: map[*qp]struct{}{}}
	if q.pump, err = newPump(c.in, cqe, vector); err != nil {
		return nil, err
	}
	q.pumps.Store(new([]*pump))
	return q, nil
}

// attach adds a QP.
func (c *cq) attach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q] = struct{}{}
	c.publish()
}

func (c *cq) detach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.qps, q)
	c.publish()
	if c.asleep { // in the pump of that QP, which may have lost its last QP
		c.asleep = false
		c.wake()
	}
}

// publish updates pumps. The caller holds mu.
func (c *cq) publish() {
	var pumps []*pump
	for q := range c.qps {
		if !slices.Contains(pumps, q.pump) {
			pumps = append(pumps, q.pump)
		}
	}
	c.pumps.Store(&pumps)
}

func (c *cq) CQE() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

// Resize implements verbs.ProviderCQResizer.
func (c *cq) Resize(cqe int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.ring.Len(); cqe < n {
		return invalid("CQE %d: %d completions are in the queue", cqe, n)
	}
	c.size = cqe
	return nil
}

func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	c.mu.Lock()
	n := c.ring.Take(wcs)
	lost := c.overflow
	c.mu.Unlock()
	if n == 0 && lost {
		return 0, verbs.ErrCQOverflow
	}
	return n, nil
}

// Drive implements verbs.ProviderCQDriver.
func (c *cq) Drive() {
	for _, p := range *c.pumps.Load() {
		p.visit()
	}
}

// Spin implements verbs.ProviderCQDriver.
func (c *cq) Spin() time.Duration { return c.pump.spin }

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	c.arm = c.arm.With(solicitedOnly)
	c.mu.Unlock()
	for _, p := range *c.pumps.Load() {
		queue.Signal(p.back) // the program is about to wait for an event
	}
	return nil
}

// Sleep implements verbs.ProviderCQDriver. No other CQ uses the channel.
func (c *cq) Sleep(ctx context.Context, solicitedOnly bool) error {
	c.mu.Lock()
	c.arm = c.arm.With(solicitedOnly)
	some := c.ring.Len() > 0 || c.overflow
	c.mu.Unlock()
	if some {
		return nil
	}
	for again := false; c.ch.take() == nil; again = true {
		if again && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := c.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// onlyPump returns the pump shared by all QPs of the CQ, or nil if there are none or several.
func (c *cq) onlyPump() *pump {
	if pumps := *c.pumps.Load(); len(pumps) == 1 {
		return pumps[0]
	}
	return nil
}

// rest waits until there may be an event. If all QPs of the CQ share a pump, the goroutine waits
// for the network in it; otherwise the pumps' own goroutines do.
func (c *cq) rest(ctx context.Context) error {
	p := c.onlyPump()
	var seat chan struct{}
	if p != nil {
		seat = p.seat
		p.call()
		defer p.leave()
	}
	select { // the seat is usually free, and this is cheaper than the full select
	case seat <- struct{}{}:
	default:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ch.closed:
			return verbs.ErrClosed
		case <-c.ch.ready:
			return nil
		case seat <- struct{}{}:
		}
	}
	err := c.sleepIn(ctx, p)
	<-seat
	return err
}

// sleepIn waits until the pump has something to do. The caller holds the pump's seat.
func (c *cq) sleepIn(ctx context.Context, p *pump) error {
	if err := p.arm(); err != nil {
		return err
	}
	if c.nap.of != ctx || c.nap.ctx.Err() != nil {
		if c.nap.cancel != nil {
			c.nap.cancel()
		}
		c.nap.of = ctx
		c.nap.ctx, c.nap.cancel = context.WithCancel(ctx)
	}
	c.mu.Lock()
	if c.arm == queue.Disarmed || c.overflow || c.gone || c.onlyPump() != p {
		c.mu.Unlock()
		return nil
	}
	c.asleep, c.wake = true, c.nap.cancel
	c.mu.Unlock()
	p.sleep(c.nap.ctx)
	c.mu.Lock()
	c.asleep = false
	c.mu.Unlock()
	p.idle.Store(false)
	p.work()
	return nil
}

// push adds a completion. solicited reports whether the peer requested a completion event. The
// caller may hold a qp's mu.
func (c *cq) push(wc *verbs.WC, solicited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring.Len() == c.size || c.overflow {
		if !c.overflow {
			c.overflow = true
			go c.overflowed()
		}
		return
	}
	c.ring.Push(*wc)
	if c.arm.Fires(solicited || wc.Status != verbs.WCSuccess) {
		c.arm = queue.Disarmed
		c.notify()
	}
}

// notify sends an event. The caller holds mu.
func (c *cq) notify() {
	c.ch.notify(c)
	if c.asleep {
		c.asleep = false
		c.wake()
	}
}

// overflowed moves every QP of a CQ that lost completions to ERR and wakes all waiters.
func (c *cq) overflowed() {
	c.mu.Lock()
	qps := make([]*qp, 0, len(c.qps))
	for q := range c.qps {
		qps = append(qps, q)
	}
	if !c.gone {
		c.notify()
	}
	c.mu.Unlock()
	c.ctx.events.Post(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c.owner, Err: verbs.ErrCQOverflow})
	for _, q := range qps {
		q.mu.Lock()
		q.fail(verbs.ErrCQOverflow)
		q.mu.Unlock()
	}
}

func (c *cq) Destroy() error {
	c.mu.Lock()
	c.gone = true
	c.arm = queue.Disarmed
	if c.asleep {
		c.wake()
	}
	if c.nap.cancel != nil {
		defer c.nap.cancel()
	}
	c.mu.Unlock()
	c.ch.forget(c)
	c.ctx.events.Sweep()
	return c.pump.close()
}
