// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/calllock"
	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelCQ is a completion queue. Poll goes straight to the device's queue, but while a QP is being
// drained, and after an overflow, completions go through soft.
type kernelCQ struct {
	ctx    *kernelContext
	owner  *CQ
	c      ibverbs.CQ
	ch     *kernelChannel
	cookie uint64
	cqe    atomic.Int64

	direct calllock.Lock // held by a poll in progress, and from Destroy on
	slow   atomic.Bool   // completions go through soft
	lost   atomic.Bool   // it has overflowed

	mu     sync.Mutex // guards what follows; before the locks of the QPs' queues
	gone   bool       // destroyed
	qps    members[kernelQP]
	soft   wcQueue
	buf    []WC // see fetch
	drains int  // in progress
}

// CreateCQ makes a completion queue.
func (c *kernelContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error) {
	cq := new(kernelCQ)
	if err := cq.create(c, owner, cqe, ch, vector, cq); err != nil {
		return nil, err
	}
	return cq, nil
}

// create makes the queue. Its events go to self, the object of which cq is a part.
func (cq *kernelCQ) create(c *kernelContext, owner *CQ, cqe int, ch ProviderCompChannel, vector int, self any) error {
	own, err := Own[*kernelChannel](ch)
	if err != nil {
		return err
	}
	cq.ctx, cq.owner, cq.ch = c, owner, own
	if err := c.counts.cq.add(); err != nil {
		return err
	}
	cq.cookie = newCookie(self)
	var room int
	if cq.c, room, err = c.c.CreateCQ(ibverbs.CQConfig{CQE: cqe, Cookie: cq.cookie, Channel: cq.ch.c, Vector: vector,
		WithInv: c.withInv}); err != nil {
		dropCookie(cq.cookie)
		c.counts.cq.remove()
		return callError("ibv_create_cq", err)
	}
	cq.ch.retain()
	cq.cqe.Store(int64(room))
	return nil
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

func (cq *kernelCQ) canPollDirect() bool { return true }

// pollDirect is Poll if the CQ is not closed, nobody else is in it and completions do not go
// through soft.
func (cq *kernelCQ) pollDirect(wcs []WC) (n int, ok bool, err error) {
	if len(wcs) == 0 || cq.slow.Load() || !cq.direct.TryLock() {
		return 0, false, nil
	}
	atEnd := cq.direct.AtEnd()
	n, err = cq.poll(wcs, atEnd)
	if atEnd == nil {
		cq.direct.Unlock()
	}
	return n, true, err
}

// poll polls the device, which stores 0 to atEnd when it is done, unless that is nil.
func (cq *kernelCQ) poll(wcs []WC, atEnd *ibverbs.Held) (int, error) {
	n := cq.c.Poll(flatWCs(wcs), atEnd)
	if n > 0 && n&ibverbs.PollErrors == 0 || n == 0 && !cq.lost.Load() {
		return n, nil
	}
	return cq.polledErrors(wcs, n)
}

// polledErrors ends a poll of the device in which something is wrong.
func (cq *kernelCQ) polledErrors(wcs []WC, n int) (int, error) {
	switch {
	case n < 0:
		return 0, callError("ibv_poll_cq", ibverbs.NoErrno)
	case n == 0:
		return 0, ErrCQOverflow
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return cq.digest(wcs[:n&^ibverbs.PollErrors]), nil
}

// CQE is how many completions there is room for.
func (cq *kernelCQ) CQE() int { return int(cq.cqe.Load()) }

// Resize changes the room.
func (cq *kernelCQ) Resize(cqe int) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	room, err := cq.c.Resize(cqe)
	if err != nil {
		return callError("ibv_resize_cq", err)
	}
	cq.cqe.Store(int64(room))
	return nil
}

// ReqNotify arms the CQ.
func (cq *kernelCQ) ReqNotify(solicitedOnly bool) error {
	return callError("ibv_req_notify_cq", cq.c.ReqNotify(solicitedOnly))
}

func (cq *kernelCQ) notified() *CQ { return cq.owner }

func (cq *kernelCQ) event(ev *AsyncEvent) {
	ev.CQ = cq.owner
	if ev.Type != EventCQErr {
		return
	}
	ev.Err = ErrCQOverflow
	cq.mu.Lock()
	// The completions in it can still be polled. If the library fails here, the next Poll tells.
	cq.slow.Store(true)
	_ = cq.fetch(math.MaxInt)
	cq.lost.Store(true)
	if !cq.gone {
		cq.ch.post(cq.owner) // wakes a goroutine that waits
	}
	qps := cq.qps.all()
	cq.mu.Unlock()
	for _, q := range qps {
		q.fail(ErrCQOverflow)
	}
}

// Destroy destroys the CQ. All its events have been acknowledged as they were read, so the library
// has nothing to wait for.
func (cq *kernelCQ) Destroy() error {
	cq.mu.Lock()
	cq.gone = true
	cq.mu.Unlock()
	cq.ch.forget(cq.owner)
	cq.direct.Lock()
	err := callError("ibv_destroy_cq", cq.c.Destroy())
	dropCookie(cq.cookie)
	cq.ctx.async.Sweep()
	cq.ctx.counts.cq.remove()
	return errors.Join(err, cq.ch.release())
}

// batch is how many completions are taken from the device at a time.
const batch = 64

// digest notes what the errors among completions say, takes out the marks of a drain and returns
// how many remain.
func (cq *kernelCQ) digest(wcs []WC) int {
	n := 0
	for i := range wcs {
		if wc := &wcs[i]; wc.Status != WCSuccess {
			if q := cq.qps.find(wc.QPNum); q != nil && q.refused(wc) {
				continue
			}
		}
		if n != i {
			wcs[n] = wcs[i]
		}
		n++
	}
	return n
}

// pollSoft is Poll through soft.
func (cq *kernelCQ) pollSoft(wcs []WC) (int, error) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	err := cq.fetch(len(wcs))
	n := cq.soft.take(wcs)
	if cq.drains == 0 && cq.soft.len() == 0 {
		cq.slow.Store(false)
	}
	return n, cq.softError(n, err)
}

// softError is the error of a poll that took n completions from soft, which fetch had filled with
// the result err.
func (cq *kernelCQ) softError(n int, err error) error {
	switch {
	case n > 0:
		return nil
	case err == nil && cq.lost.Load():
		return ErrCQOverflow
	}
	return err
}

// fetch takes completions from the device until soft holds want of them or the device has no more.
func (cq *kernelCQ) fetch(want int) error {
	return cq.fetchTo(want, func(wcs []WC) { cq.soft.put(wcs[:cq.digest(wcs)]...) })
}

// fetchTo takes completions from the device and has them put into soft, until that holds want of
// them or the device has no more.
func (cq *kernelCQ) fetchTo(want int, put func([]WC)) error {
	if cq.gone {
		return nil
	}
	if cq.buf == nil {
		cq.buf = make([]WC, batch)
	}
	for cq.soft.len() < want {
		ask := min(want-cq.soft.len(), batch)
		n := cq.c.Poll(flatWCs(cq.buf[:ask]), nil)
		if n < 0 {
			return callError("ibv_poll_cq", ibverbs.NoErrno)
		}
		got := n &^ ibverbs.PollErrors
		put(cq.buf[:got])
		if got < ask {
			break
		}
	}
	return nil
}

// fetchAll takes all completions that the device has.
func (cq *kernelCQ) fetchAll() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	_ = cq.fetch(math.MaxInt) // a CQ that cannot be polled has nothing
}

// members are the QPs of a CQ.
type members[Q any] struct {
	byNum map[uint32]*Q
	num   uint32
	last  *Q // found last, by num
}

func (m *members[Q]) add(num uint32, q *Q) {
	if m.byNum == nil {
		m.byNum = make(map[uint32]*Q)
	}
	m.byNum[num], m.last = q, nil
}

func (m *members[Q]) remove(num uint32) {
	delete(m.byNum, num)
	m.last = nil
}

// find returns the QP of a number, nil if it is gone.
func (m *members[Q]) find(num uint32) *Q {
	if m.last == nil || m.num != num {
		m.num, m.last = num, m.byNum[num]
	}
	return m.last
}

func (m *members[Q]) all() []*Q {
	qs := make([]*Q, 0, len(m.byNum))
	for _, q := range m.byNum {
		qs = append(qs, q)
	}
	return qs
}

// wcQueue is a queue of completions.
type wcQueue struct {
	wcs  []WC
	head int
}

func (q *wcQueue) len() int { return len(q.wcs) - q.head }

func (q *wcQueue) put(wcs ...WC) { q.wcs = append(q.wcs, wcs...) }

func (q *wcQueue) take(wcs []WC) int {
	n := copy(wcs, q.wcs[q.head:])
	if q.head += n; q.head == len(q.wcs) {
		q.wcs, q.head = q.wcs[:0], 0
	}
	return n
}
