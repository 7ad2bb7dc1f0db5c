// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"
	"runtime"
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

	watch atomic.Pointer[watch] // over its connections; changes under device.watching and mu
	tied  int                   // how many connections of the watch complete here; guarded by device.watching

	yielded atomic.Int64 // when something was last received by a poller, or others were let run

	// Connections that each have a watch of their own (watches.go): all, guarded by mu, and those that Drive serves, nil if
	// there are too many.
	alone  []*conn
	driven atomic.Pointer[[]*conn]
}

// maxDriven is how many connections without a common watch a CQ may have for a poller to receive for them itself.
const maxDriven = 4

// Who polls in vain for so long lets others run (yielder): without another processor nobody else would look at the network,
// and with one that computes neither.
const (
	yieldAlone = 10 * time.Microsecond // with one processor
	yieldBusy  = 100 * time.Microsecond
)

// Drive implements verbs.ProviderCQDriver: it receives for the CQ's connections, where nobody else does at the moment.
func (c *cq) Drive() {
	now, n := clock(), 0
	if w := c.watch.Load(); w != nil {
		n = w.poll(now)
	}
	if conns := c.driven.Load(); conns != nil {
		for _, conn := range *conns {
			n += conn.poll().conns
		}
	}
	switch vain := now - c.yielded.Load(); {
	case n > 0:
		c.yielded.Store(now)
	case vain > int64(yieldBusy), vain > int64(yieldAlone) && runtime.GOMAXPROCS(0) == 1:
		c.ctx.dev.yielder.yield()
		c.yielded.Store(clock())
	}
}

// Spin implements verbs.ProviderCQDriver.
func (c *cq) Spin() time.Duration { return c.ctx.dev.cfg.Spin }

// setWatch gives the CQ's connections a watch, or none. The caller holds device.watching.
func (c *cq) setWatch(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.watch.Load()
	if was == w {
		return
	}
	arm := c.arm
	c.setArm(disarmed)
	c.watch.Store(w)
	c.setArm(arm)
	c.ch.setWatch(was, w)
}

// setArm changes arm. The caller holds mu.
func (c *cq) setArm(a armed) {
	var more int32
	switch {
	case c.arm == disarmed && a != disarmed:
		more = 1
	case c.arm != disarmed && a == disarmed:
		more = -1
	}
	c.arm = a
	if w := c.watch.Load(); w != nil && more != 0 {
		c.ch.armed.Add(more)
		w.armed.Add(more)
	}
}

// drive adds a connection that has a watch of its own.
func (c *cq) drive(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.alone, n) {
		c.alone = append(c.alone, n)
		c.publish()
	}
}

// undrive takes it out.
func (c *cq) undrive(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone = slices.DeleteFunc(c.alone, func(o *conn) bool { return o == n })
	c.publish()
}

// publish renews driven. The caller holds c.mu.
func (c *cq) publish() {
	if len(c.alone) == 0 || len(c.alone) > maxDriven {
		c.driven.Store(nil)
		return
	}
	conns := slices.Clone(c.alone)
	c.driven.Store(&conns)
}

func (v *vcontext) CreateCQ(owner *verbs.CQ, cqe int, pch verbs.ProviderCompChannel) (verbs.ProviderCQ, error) {
	if v.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	ch, err := verbs.Own[*channel](pch)
	if err != nil {
		return nil, err
	}
	if err := v.dev.cqs.take(); err != nil {
		return nil, err
	}
	return &cq{ctx: v, owner: owner, ch: ch, cap: cqe, qps: make(map[*qp]struct{})}, nil
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
	c.setArm(armedAny)
	some := c.ring.len() > 0 || c.overflow
	c.mu.Unlock()
	if some {
		return nil
	}
	_, err := c.ch.Wait(ctx)
	return err
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	want := armedAny
	if solicitedOnly {
		want = armedSolicited
	}
	// A wish for any completion is not weakened by a later one for solicited ones (ibv_req_notify_cq).
	c.setArm(max(c.arm, want))
	w := c.watch.Load()
	c.mu.Unlock()
	if w != nil && c.ch.relied() {
		w.recall()
	}
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
		c.setArm(disarmed)
		c.notify()
	}
}

// notify sends an event. The caller holds c.mu.
func (c *cq) notify() {
	if w := c.watch.Load(); w != nil {
		w.events.Add(1)
	}
	c.ch.notify(c)
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
		c.notify()
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
	c.setArm(disarmed)
	c.mu.Unlock()
	c.ch.forget(c)
	c.ctx.dev.cqs.give()
	return nil
}
