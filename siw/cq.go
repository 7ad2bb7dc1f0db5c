// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// armed is what a CQ waits for before it sends an event.
type armed uint8

const (
	disarmed armed = iota
	armedSolicited
	armedAny
)

// cq is a completion queue (verbs.ProviderCQ): a ring that grows up to its capacity.
type cq struct {
	ctx   *vcontext
	owner *verbs.CQ
	ch    *channel

	queued bool // an event waits in ch; guarded by ch.mu

	mu       sync.Mutex // guards what follows; taken below a qp's mu
	cap      int
	ring     ring[verbs.WC]
	arm      armed
	overflow bool
	gone     bool // Destroy has been called
	qps      map[*qp]struct{}
	conns    []*conn

	// driven are the connections that Drive serves, nil if there are too many.
	driven atomic.Pointer[[]*conn]
}

// maxDriven is how many connections a CQ may have for a poller to look after them itself: it costs a system call for each.
const maxDriven = 4

// Drive implements verbs.ProviderCQDriver: it receives for the CQ's connections, where nobody else does at the moment.
func (c *cq) Drive() {
	conns := c.driven.Load()
	if conns == nil {
		return
	}
	for _, conn := range *conns {
		if conn.rx.mu.TryLock() {
			conn.polled()
			conn.receiveLocked()
			conn.rx.mu.Unlock()
		}
	}
}

// Spin implements verbs.ProviderCQDriver.
func (c *cq) Spin() time.Duration { return c.ctx.dev.cfg.Spin }

// join adds a connection whose requests complete here.
func (c *cq) join(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.conns, n) {
		c.conns = append(c.conns, n)
		c.publish()
	}
}

// part takes it out.
func (c *cq) part(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = slices.DeleteFunc(c.conns, func(o *conn) bool { return o == n })
	c.publish()
}

// publish renews driven. The caller holds c.mu.
func (c *cq) publish() {
	if len(c.conns) == 0 || len(c.conns) > maxDriven {
		c.driven.Store(nil)
		return
	}
	conns := slices.Clone(c.conns)
	c.driven.Store(&conns)
}

func (v *vcontext) CreateCQ(owner *verbs.CQ, cqe int, pch verbs.ProviderCompChannel) (verbs.ProviderCQ, error) {
	if v.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	if err := v.dev.cqs.take(); err != nil {
		return nil, err
	}
	return &cq{ctx: v, owner: owner, ch: pch.(*channel), cap: cqe, qps: make(map[*qp]struct{})}, nil
}

func (c *cq) CQE() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cap
}

func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	c.mu.Lock()
	n := 0
	for ; n < len(wcs) && c.ring.len() > 0; n++ {
		wcs[n] = c.ring.pop()
	}
	lost := c.overflow
	c.mu.Unlock()
	if n == 0 && lost {
		return 0, verbs.ErrCQOverflow
	}
	return n, nil
}

// Sleep implements verbs.ProviderCQDriver. The CQ's channel is its own.
func (c *cq) Sleep(ctx context.Context) error {
	c.mu.Lock()
	c.arm = armedAny
	some := c.ring.len() > 0 || c.overflow
	c.mu.Unlock()
	if some {
		return nil
	}
	if conns := c.driven.Load(); conns != nil && len(*conns) == 1 {
		conn := (*conns)[0]
		conn.unhush()
		if conn.takeLookout() {
			return c.ch.lookOut(ctx, conn)
		}
	}
	c.sleeping()
	_, err := c.ch.Wait(ctx)
	return err
}

// sleeping tells the connections that somebody relies on their readers.
func (c *cq) sleeping() {
	if conns := c.driven.Load(); conns != nil {
		for _, conn := range *conns {
			conn.unhush()
			conn.recallLookout()
		}
	}
}

// isArmed reports whether somebody may be waiting for an event.
func (c *cq) isArmed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.arm != disarmed
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	want := armedAny
	if solicitedOnly {
		want = armedSolicited
	}
	// A wish for any completion is not weakened by a later one for solicited ones (ibv_req_notify_cq).
	c.arm = max(c.arm, want)
	c.mu.Unlock()
	c.sleeping()
	return nil
}

// push adds a completion. solicited marks one that the peer asked to be an event. The caller may hold a qp's mu.
func (c *cq) push(wc *verbs.WC, solicited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring.len() == c.cap || c.overflow {
		if !c.overflow {
			c.overflow = true
			go c.overflowed()
		}
		return
	}
	c.ring.push(*wc)
	if c.arm == armedAny || c.arm == armedSolicited && (solicited || wc.Status != verbs.WCSuccess) {
		c.arm = disarmed
		c.ch.notify(c)
	}
}

// overflowed puts every QP of a CQ that lost completions into the error state and wakes whoever waits. The peers are told that
// it is not an orderly end (RFC 5040 section 7.1).
func (c *cq) overflowed() {
	c.mu.Lock()
	qps := make([]*qp, 0, len(c.qps))
	for q := range c.qps {
		qps = append(qps, q)
	}
	if !c.gone {
		c.ch.notify(c)
	}
	c.mu.Unlock()
	c.ctx.post(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c.owner, Err: verbs.ErrCQOverflow})
	for _, q := range qps {
		q.fail(verbs.ErrCQOverflow, &termination{fault: faultLocal})
	}
}

func (c *cq) attach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.qps[q] = struct{}{}
}

func (c *cq) detach(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.qps, q)
}

func (c *cq) Destroy() error {
	c.mu.Lock()
	c.gone = true
	c.mu.Unlock()
	c.ch.forget(c)
	c.ctx.dev.cqs.give()
	return nil
}
