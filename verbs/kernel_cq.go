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

// kernelCQ is a completion queue. Poll reads the device's queue directly, except while a QP is
// being drained and after an overflow, when completions pass through soft.
type kernelCQ struct {
	ctx    *kernelContext
	owner  *CQ
	c      ibverbs.CQ
	ch     *kernelChannel
	cookie uint64
	cqe    atomic.Int64

	direct calllock.Lock // held by a poll in progress, and from Destroy on
	slow   atomic.Bool   // completions pass through soft
	lost   atomic.Bool   // it overflowed

	mu     sync.Mutex // guards the fields below; acquired before the locks of the QPs' queues
	gone   bool       // destroyed
	qps    members[kernelQP]
	soft   wcQueue
	buf    []WC // see fetch
	drains int  // in progress
}

// CreateCQ creates a completion queue.
func (c *kernelContext) CreateCQ(owner *CQ, cqe int, ch ProviderCompChannel, vector int) (ProviderCQ, error) {
	cq := new(kernelCQ)
	if err := cq.create(c, owner, cqe, ch, vector, cq); err != nil {
		return nil, err
	}
	return cq, nil
}

// create creates the queue. Its events go to self, the object that embeds cq.
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

// Poll converts completions in C, directly into wcs.
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

// pollDirect is Poll for the case that the CQ is open, no other poll is in progress and completions
// do not pass through soft. Otherwise ok is false.
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

// poll polls the device, which stores 0 to atEnd when it is done, unless atEnd is nil.
func (cq *kernelCQ) poll(wcs []WC, atEnd *ibverbs.Held) (int, error) {
	n := cq.c.Poll(flatWCs(wcs), atEnd)
	if n > 0 && n&ibverbs.PollErrors == 0 || n == 0 && !cq.lost.Load() {
		return n, nil
	}
	return cq.polledErrors(wcs, n)
}

// polledErrors handles the result of a poll that failed, found failed completions or found an
// overflowed CQ empty.
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

// CQE returns the capacity.
func (cq *kernelCQ) CQE() int { return int(cq.cqe.Load()) }

// Resize changes the capacity.
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
	// The completions in it can still be polled. If the library fails here, the next Poll reports
	// it.
	cq.slow.Store(true)
	_ = cq.fetch(math.MaxInt)
	cq.lost.Store(true)
	if !cq.gone {
		cq.ch.post(cq.owner) // wakes a waiting goroutine
	}
	qps := cq.qps.all()
	cq.mu.Unlock()
	for _, q := range qps {
		q.fail(ErrCQOverflow)
	}
}

// Destroy destroys the CQ. Events are acknowledged as they are read, so the library does not have
// to wait for any.
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

// batch is the number of completions polled from the device at once.
const batch = 64

// digest handles the failed completions, removes the marks of a drain, and returns the number of
// completions that remain.
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

// pollSoft is Poll by way of soft.
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

// softError returns the error of a poll that returned n completions from soft, after fetch returned
// err.
func (cq *kernelCQ) softError(n int, err error) error {
	switch {
	case n > 0:
		return nil
	case err == nil && cq.lost.Load():
		return ErrCQOverflow
	}
	return err
}

// fetch polls the device until soft holds want completions or the device has no more.
func (cq *kernelCQ) fetch(want int) error {
	return cq.fetchTo(want, func(wcs []WC) { cq.soft.put(wcs[:cq.digest(wcs)]...) })
}

// fetchTo polls the device and passes the completions to put, which adds them to soft, until soft
// holds want of them or the device has no more.
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

// fetchAll polls the device until it has no more completions.
func (cq *kernelCQ) fetchAll() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	_ = cq.fetch(math.MaxInt) // if the CQ cannot be polled, there is nothing to fetch
}

// members is the set of QPs that use a CQ.
type members[Q any] struct {
	byNum map[uint32]*Q
	num   uint32
	last  *Q // result of the last find, for num
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

// find returns the QP with this number, nil if it is gone.
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
