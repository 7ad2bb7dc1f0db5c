// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// cq is a completion queue (verbs.ProviderCQ): a ring that grows up to its capacity.
type cq struct {
	ctx   *vcontext
	owner *verbs.CQ
	ch    *channel

	queued bool // an event is queued in ch; guarded by ch.mu

	mu       sync.Mutex // guards the fields below; taken after a qp's mu
	cap      int
	ring     queue.Ring[verbs.WC]
	arm      queue.Arm
	overflow bool
	gone     bool // Destroy was called
	qps      map[*qp]struct{}

	watch atomic.Pointer[watch] // the watch of its connections; changes under device.watching and mu
	tied  int                   // number of the watch's connections that complete here; guarded by device.watching

	// The program armed the CQ and will most likely sleep next. The next empty poll does not
	// receive, because the goroutine that goes to sleep receives first.
	justArmed atomic.Bool

	yielded  atomic.Int64 // when a poller last received something, yielded or slept
	patience atomic.Int64 // what yieldAfter returned when the poller last yielded

	// Connections that have separate watches (watches.go). alone, guarded by mu, lists all of them;
	// driven lists those for which Drive receives, and is nil if there are more than maxDriven.
	alone  []*conn
	driven atomic.Pointer[[]*conn]
}

// maxDriven limits the connections with separate watches for which a poller of the CQ receives. If
// there are more, it receives for none of them.
const maxDriven = 4

// A poller that finds nothing for this long yields to other goroutines (yielder). Otherwise, with a
// single processor or while the other processors are busy, goroutines that wait for the network
// would not run.
const (
	yieldAlone = 10 * time.Microsecond // with one processor
	yieldBusy  = 100 * time.Microsecond
)

// Drive implements verbs.ProviderCQDriver. It receives for the CQ's connections, except those for
// which another goroutine is receiving.
func (c *cq) Drive() {
	if c.justArmed.Load() && c.justArmed.Swap(false) {
		return
	}
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
	case vain > c.patience.Load():
		c.ctx.dev.yielder.yield()
		c.patience.Store(yieldAfter())
		c.yielded.Store(clock())
	}
}

// slept records that the program slept for a completion. Other goroutines ran meanwhile, so a poll
// that finds nothing need not yield soon.
func (c *cq) slept() { c.yielded.Store(clock()) }

// yieldAfter returns how long, in nanoseconds, a poller may find nothing before it yields. Reading
// GOMAXPROCS takes a scheduler lock, which is too expensive for every poll.
func yieldAfter() int64 {
	if runtime.GOMAXPROCS(0) == 1 {
		return int64(yieldAlone)
	}
	return int64(yieldBusy)
}

// Spin implements verbs.ProviderCQDriver.
func (c *cq) Spin() time.Duration { return c.ctx.dev.cfg.Spin }

// setWatch sets the watch of the CQ; nil means none. The caller holds device.watching.
func (c *cq) setWatch(w *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.watch.Load()
	if was == w {
		return
	}
	arm := c.arm
	c.setArm(queue.Disarmed)
	c.watch.Store(w)
	c.setArm(arm)
	c.ch.setWatch(was, w)
}

// setArm sets arm and updates the counts of armed CQs. The caller holds mu.
func (c *cq) setArm(a queue.Arm) {
	var more int32
	switch {
	case c.arm == queue.Disarmed && a != queue.Disarmed:
		more = 1
	case c.arm != queue.Disarmed && a == queue.Disarmed:
		more = -1
	}
	c.arm = a
	if w := c.watch.Load(); w != nil && more != 0 {
		c.ch.armed.Add(more)
		w.armed.Add(more)
	}
}

// drive adds a connection with a separate watch.
func (c *cq) drive(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.alone, n) {
		c.alone = append(c.alone, n)
		c.publish()
	}
}

// undrive removes a connection that drive added.
func (c *cq) undrive(n *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone = slices.DeleteFunc(c.alone, func(o *conn) bool { return o == n })
	c.publish()
}

// publish updates driven. The caller holds c.mu.
func (c *cq) publish() {
	if len(c.alone) == 0 || len(c.alone) > maxDriven {
		c.driven.Store(nil)
		return
	}
	conns := slices.Clone(c.alone)
	c.driven.Store(&conns)
}

// CreateCQ implements verbs.ProviderContext. There is only one completion vector, because CQs have
// no interrupts.
func (v *vcontext) CreateCQ(owner *verbs.CQ, cqe int, pch verbs.ProviderCompChannel, _ int) (verbs.ProviderCQ, error) {
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
	c := &cq{ctx: v, owner: owner, ch: ch, cap: cqe, qps: make(map[*qp]struct{})}
	c.patience.Store(yieldAfter())
	return c, nil
}

func (c *cq) CQE() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cap
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

// Sleep implements verbs.ProviderCQDriver. The CQ has its channel to itself.
func (c *cq) Sleep(ctx context.Context, solicitedOnly bool) error {
	c.mu.Lock()
	c.setArm(c.arm.With(solicitedOnly))
	some := c.ring.Len() > 0 || c.overflow
	c.mu.Unlock()
	if some {
		return nil
	}
	_, slept, err := c.ch.wait(ctx)
	if slept && c.Spin() > 0 { // without spinning, the program does not poll before it sleeps again
		c.slept()
	}
	return err
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	first := c.arm == queue.Disarmed
	c.setArm(c.arm.With(solicitedOnly))
	w := c.watch.Load()
	c.mu.Unlock()
	switch {
	case w == nil:
	case c.ch.relied():
		w.recall()
	case first: // a program that only arms and polls still receives with at least every other poll
		c.justArmed.Store(true)
	}
	return nil
}

// push adds a completion. solicited is set if the peer asked for a completion event. The caller may
// hold a qp's mu.
func (c *cq) push(wc *verbs.WC, solicited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring.Len() == c.cap || c.overflow {
		if !c.overflow {
			c.overflow = true
			go c.overflowed()
		}
		return
	}
	c.ring.Push(*wc)
	if c.arm.Fires(solicited || wc.Status != verbs.WCSuccess) {
		c.setArm(queue.Disarmed)
		c.notify()
	}
}

// notify queues a completion event. The caller holds c.mu.
func (c *cq) notify() {
	woken := c.ch.notify(c)
	if w := c.watch.Load(); w != nil && woken {
		w.events.Add(1)
	}
}

// overflowed moves every QP of a CQ that lost completions to ERR and wakes all waiters. It sends
// the peers Terminates to show that the shutdown is not orderly (RFC 5040 section 7.1).
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
	c.setArm(queue.Disarmed)
	c.mu.Unlock()
	c.ch.forget(c)
	c.ctx.dev.cqs.give()
	c.ctx.events.Sweep()
	return nil
}
