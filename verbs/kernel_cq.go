// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// kernelCQ is a completion queue. On devices that keep libibverbs' promises Poll goes straight to the device's queue. On the
// others, and while a QP is being drained, completions go through soft.
type kernelCQ struct {
	ctx    *kernelContext
	owner  *CQ
	c      rawCQ
	ch     *kernelChannel
	cookie uint64
	cqe    atomic.Int64

	direct  callLock // held by a poll in progress, and from Destroy on
	tracked bool
	slow    atomic.Bool  // completions go through soft
	lost    atomic.Bool  // it has overflowed
	waiting atomic.Int64 // completions in soft
	watched atomic.Bool  // see watch
	hidden  atomic.Int64 // requests that the device will report and the poller not see
	held    atomic.Int64 // requests in the gates of the QPs

	mu   sync.Mutex // guards what follows; before the locks of the QPs' queues
	gone bool       // destroyed
	qps  map[uint32]*kernelQP
	last *kernelQP // found last
	soft wcQueue
	buf  []WC // of a pump
	// How many completions have come, and of those the ones that wake who waits for solicited ones.
	all, urgent uint64
	armed       bool
	armedUrgent bool   // for solicited ones
	armedAt     uint64 // all, or urgent, when it was armed
	drains      int    // in progress, of QPs of a device that is not tracked
}

// hiddenSlack is how much larger than asked for a device's CQ is made if the device reports requests that the poller does
// not see.
const hiddenSlack = 1024

// CreateCQ makes a completion queue.
func (c *kernelContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel) (ProviderCQ, error) {
	to, err := Own[*kernelChannel](ch)
	if err != nil {
		return nil, err
	}
	cq := &kernelCQ{ctx: c, owner: owner, ch: to, tracked: c.model.tracked, qps: make(map[uint32]*kernelQP)}
	if c.model.tracked {
		cqe = min(cqe+hiddenSlack, max(cqe, c.attr.MaxCQE))
	}
	if err := c.counts.cq.add(); err != nil {
		return nil, err
	}
	cq.cookie = newCookie(cq)
	var room, rc int
	if cq.c, room, rc = c.c.createCQ(cqe, cq.cookie, cq.ch.c); rc != 0 {
		dropCookie(cq.cookie)
		c.counts.cq.remove()
		return nil, callError("ibv_create_cq", rc)
	}
	cq.ch.retain()
	cq.cqe.Store(int64(room))
	if cq.tracked {
		cq.slow.Store(true)
	}
	return cq, nil
}

// Poll has completions converted in C, straight into wcs.
func (cq *kernelCQ) Poll(wcs []WC) (int, error) {
	switch {
	case len(wcs) == 0:
		return 0, nil
	case cq.slow.Load():
		return cq.pollSoft(wcs)
	}
	return cq.poll(wcs, nil)
}

// canPollDirect reports whether the device's queue is the only one.
func (cq *kernelCQ) canPollDirect() bool { return !cq.tracked }

// pollDirect is Poll if the CQ is not closed, nobody else is in it and completions do not go through soft.
func (cq *kernelCQ) pollDirect(wcs []WC) (n int, ok bool, err error) {
	if len(wcs) == 0 || cq.slow.Load() || !cq.direct.tryLock() {
		return 0, false, nil
	}
	atEnd := cq.direct.atEnd()
	n, err = cq.poll(wcs, atEnd)
	if atEnd == nil {
		cq.direct.Unlock()
	}
	return n, true, err
}

// poll polls the device. C stores 0 to atEnd, which may be nil, when it is done.
func (cq *kernelCQ) poll(wcs []WC, atEnd *atomic.Uint32) (int, error) {
	n := cq.c.poll(wcs, cq.ctx.model.withInv, atEnd)
	if n > 0 && n&pollErrors == 0 || n == 0 && !cq.lost.Load() {
		return n, nil
	}
	return cq.settle(wcs, n)
}

// settle ends a poll of the device in which something is wrong.
func (cq *kernelCQ) settle(wcs []WC, n int) (int, error) {
	switch {
	case n < 0:
		return 0, callError("ibv_poll_cq", -1)
	case n == 0:
		return 0, ErrCQOverflow
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.digest(wcs[:n&^pollErrors]), nil
}

func (cq *kernelCQ) attach(q *kernelQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.qps[q.num] = q
	cq.last = nil
}

func (cq *kernelCQ) detach(q *kernelQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	delete(cq.qps, q.num)
	cq.last = nil
}

// CQE is how many completions there is room for.
func (cq *kernelCQ) CQE() int { return int(cq.cqe.Load()) }

// Resize changes the room.
func (cq *kernelCQ) Resize(cqe int) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.ctx.model.tracked {
		cqe = min(cqe+hiddenSlack, max(cqe, cq.ctx.attr.MaxCQE))
	}
	room, rc := cq.c.resize(cqe)
	if rc != 0 {
		return callError("ibv_resize_cq", rc)
	}
	cq.cqe.Store(int64(room))
	return nil
}

// event notes what an event says about the CQ.
func (cq *kernelCQ) event(ev *AsyncEvent) {
	if ev.Type != EventCQErr {
		return
	}
	ev.Err = ErrCQOverflow
	cq.mu.Lock()
	// What it held can still be polled. A failure of the library's is for the next Poll.
	cq.slow.Store(true)
	_ = cq.pump(math.MaxInt)
	cq.lost.Store(true)
	cq.mu.Unlock()
	cq.endQPs()
}

// overflowed is event for a CQ that has overflowed here and not in the device.
func (cq *kernelCQ) overflowed() {
	cq.mu.Lock()
	gone := cq.gone
	cq.mu.Unlock()
	if gone {
		return
	}
	cq.ctx.async.put(AsyncEvent{Type: EventCQErr, CQ: cq.owner, Err: ErrCQOverflow})
	cq.endQPs()
}

// endQPs tells who waits for the CQ, and fails its QPs.
func (cq *kernelCQ) endQPs() {
	cq.mu.Lock()
	if !cq.gone && (cq.armed || !cq.tracked) {
		cq.armed = false
		cq.ch.post(cq)
	}
	qps := make([]*kernelQP, 0, len(cq.qps))
	for _, q := range cq.qps {
		qps = append(qps, q)
	}
	cq.mu.Unlock()
	for _, q := range qps {
		q.fail(ErrCQOverflow)
	}
}

// Destroy destroys the CQ. All its events have been acknowledged as they were read, so the library has nothing to wait
// for.
func (cq *kernelCQ) Destroy() error {
	cq.mu.Lock()
	cq.gone = true
	cq.mu.Unlock()
	cq.ch.forget(cq)
	cq.direct.Lock()
	err := callError("ibv_destroy_cq", cq.c.destroy())
	dropCookie(cq.cookie)
	cq.ctx.counts.cq.remove()
	return errors.Join(err, cq.ch.release())
}
