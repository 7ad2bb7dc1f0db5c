// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// cq is a completion queue (verbs.ProviderCQBypass, ProviderCQResizer). While nothing is being
// composed on its QPs, polls bypass it. Otherwise completions are sifted: those of inner requests
// are removed or replaced by the program's. It has no Unwrap, because a device that sleeps until
// the inner CQ has a completion knows nothing of those in soft.
type cq struct {
	*forward.CQ
	shut atomic.Bool // polls do not bypass mu
	// Polls in progress that bypass mu. The driver polls nothing meanwhile, because it could
	// overtake the completions that they have taken.
	polling atomic.Int32

	mu    sync.Mutex           // taken before the locks of QPs; guards the following
	marks map[uint64]*marks    // by the first ID of the inner requests
	soft  queue.Ring[verbs.WC] // completions polled by the driver, older than all others
	// of requests that were just refused; appended to soft after the completions being sifted
	late  []verbs.WC
	polls uint64       // the program's polls that did not bypass mu
	moved uint64       // completed inner requests, and waiting requests that were posted
	buf   [16]verbs.WC // see fetch

	gate    sync.Mutex // a leaf; guards the following, and writes of shut
	inner   int        // inner requests not yet polled
	busy    map[*qp]struct{}
	started bool // the driver was started

	driver driver
}

func (c *vcontext) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	in, err := c.NewCQ(owner, cqe, ch, vector)
	if err != nil {
		return nil, err
	}
	return &cq{CQ: in, marks: map[uint64]*marks{}, busy: map[*qp]struct{}{}, driver: newDriver()}, nil
}

func (c *cq) Bypass() (*verbs.CQ, *atomic.Bool, *atomic.Int32) { return c.In, &c.shut, &c.polling }

func (c *cq) Resize(cqe int) error { return c.In.Resize(cqe) }

// Destroy stops the driver, which is idle because the QPs are gone.
func (c *cq) Destroy() error {
	c.gate.Lock()
	started := c.started
	c.gate.Unlock()
	if started {
		c.driver.end()
	}
	return c.CQ.Destroy()
}

// Poll returns completions from soft first, then from the device.
func (c *cq) Poll(wcs []verbs.WC) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polls++
	n := c.soft.Take(wcs)
	var err error
	for n < len(wcs) && err == nil && len(c.late) == 0 {
		want, got := len(wcs)-n, 0
		got, err = c.In.Poll(wcs[n:])
		n += c.sift(wcs[n : n+got])
		if got < want {
			break
		}
	}
	c.settle()
	if n > 0 {
		err = nil // the next poll returns it again
	}
	return n, err
}

// Sift implements verbs.ProviderCQBypass.
func (c *cq) Sift(wcs []verbs.WC) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.sift(wcs)
	c.settle()
	return n
}

// sift removes completions of inner requests that the program must not see. The caller holds mu.
func (c *cq) sift(wcs []verbs.WC) int {
	n := 0
	for i := range wcs {
		if m := c.marks[wcs[i].ID&^(markIDs-1)]; m != nil && m.qpNum == wcs[i].QPNum {
			c.moved++
			if !c.completed(m, &wcs[i]) {
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

// completed passes the completion of an inner request to its QP, and reports whether the program is
// to see it.
func (c *cq) completed(m *marks, wc *verbs.WC) bool {
	if q := m.qp; q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		r, ok := m.take(wc.ID)
		if !ok {
			return true // the ID is one of the program's own
		}
		c.polled()
		visible := q.completed(&r, wc)
		q.pump()
		q.settle()
		return visible
	}
	// The QP was destroyed or reset, so the outcome of the request is unknown.
	r, ok := m.take(wc.ID)
	if !ok {
		return true
	}
	c.polled()
	if len(m.under) == 0 {
		delete(c.marks, m.id)
	}
	if wc.ID = r.id; wc.Status == verbs.WCSuccess {
		wc.Status = verbs.WCWRFlushErr
	}
	return !m.reset
}

// fetch moves completions from the device to soft, at most as many as the CQE that the program
// asked for. The caller holds mu.
func (c *cq) fetch() {
	c.gate.Lock()
	c.shut.Store(true)
	c.gate.Unlock()
	if c.polling.Load() > 0 {
		return
	}
	for c.soft.Len() < c.In.CQE() {
		n, err := c.In.Poll(c.buf[:min(len(c.buf), c.In.CQE()-c.soft.Len())])
		c.soft.Append(c.buf[:c.sift(c.buf[:n])])
		c.putLate()
		if n < len(c.buf) || err != nil {
			return // the program's poll returns the error
		}
	}
}

// posting closes the bypass of the CQ because an inner request is about to be posted.
func (c *cq) posting() {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.inner++
	c.shut.Store(true)
}

// polled is called for each inner request that was polled, or that failed to be posted. It does not
// reopen the bypass, because soft may hold completions.
func (c *cq) polled() {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.inner--
}

func (c *cq) putLate() {
	c.soft.Append(c.late)
	c.late = c.late[:0]
}

// settle reopens the bypass of the CQ if possible. The caller holds mu.
func (c *cq) settle() {
	c.putLate()
	if c.soft.Len() > 0 {
		return
	}
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.inner == 0 {
		c.shut.Store(false)
	}
}
