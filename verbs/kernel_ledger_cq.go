// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"math"
	"sync/atomic"
)

// ledgerCQ is the CQ of a device that breaks promises of libibverbs. All completions pass through
// soft: a completion from the device is entered into the ledger of its queue, which releases
// finished requests in order.
type ledgerCQ struct {
	kernelCQ
	unsolicited bool // the device never treats a completion as solicited

	waiting   atomic.Int64 // completions in soft
	hidden    atomic.Int64 // outstanding requests that the device reports but the program does not see
	held      atomic.Int64 // requests of the QPs that are held back, see admission
	selfPolls atomic.Bool  // see selfPoll

	ledgers members[ledgerQP] // guarded by mu, as are the fields below
	// Number of completions so far, and of those that wake a goroutine waiting for solicited ones.
	all, urgent uint64
	armed       bool
	armedUrgent bool   // armed for solicited completions only
	armedAt     uint64 // value of all, or of urgent, when armed
}

// hiddenSlack is how much larger than requested the device's CQ is made, because the device also
// reports requests that the program does not see.
const hiddenSlack = 1024

// newLedgerCQ creates a completion queue.
func newLedgerCQ(c *kernelContext, owner *CQ, cqe int, ch ProviderCompChannel, vector int,
	unsolicited bool) (ProviderCQ, error) {
	cq := &ledgerCQ{unsolicited: unsolicited}
	if err := cq.create(c, owner, withSlack(c, cqe), ch, vector, cq); err != nil {
		return nil, err
	}
	return cq, nil
}

func withSlack(c *kernelContext, cqe int) int { return min(cqe+hiddenSlack, max(cqe, c.attr.MaxCQE)) }

// Resize changes the capacity.
func (cq *ledgerCQ) Resize(cqe int) error { return cq.kernelCQ.Resize(withSlack(cq.ctx, cqe)) }

func (cq *ledgerCQ) attach(q *ledgerQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.ledgers.add(q.num, q)
}

func (cq *ledgerCQ) detach(q *ledgerQP) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.ledgers.remove(q.num)
}

func (cq *ledgerCQ) canPollDirect() bool { return false }

// Poll returns completions from soft.
func (cq *ledgerCQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	want := len(wcs)
	if cq.selfPolls.Load() {
		want = math.MaxInt // to detect an overflow that already happened
	}
	err := cq.fetch(want)
	n := cq.soft.take(wcs)
	cq.waiting.Store(int64(cq.soft.len()))
	return n, cq.softError(n, err)
}

// fetch polls the device until soft holds want completions or the device has no more.
func (cq *ledgerCQ) fetch(want int) error {
	return cq.fetchTo(want, func(wcs []WC) {
		for i := range wcs {
			cq.accept(&wcs[i])
		}
	})
}

// fetchAll polls the device until it has no more completions.
func (cq *ledgerCQ) fetchAll() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	_ = cq.fetch(math.MaxInt) // if the CQ cannot be polled, there is nothing to fetch
	cq.ring()
}

// Bits of the wr_id passed to the device. The remaining bits are the request's number in the ledger
// of the queue or the SRQ.
const (
	idRecv = 1 << 63
	idSRQ  = 1 << 62
	idOwn  = 1 << 61 // no number follows: a request of the provider itself, which is in no ledger
)

// accept enters a completion from the device into the ledger of its request.
func (cq *ledgerCQ) accept(wc *WC) {
	q := cq.ledgers.find(wc.QPNum)
	if q == nil {
		return // the QP is gone and its requests were flushed
	}
	switch {
	case wc.ID == idOwn: // nothing to report
	case wc.ID&idSRQ != 0:
		srq := q.srq
		if srq == nil {
			return // not a request of ours: the program has written to the ring
		}
		srq.mu.Lock()
		id, ok := srq.take(wc.ID)
		if ok {
			q.driver.reportedRecv(wc, srq.sgls.get(srqSlot(wc.ID)))
		}
		srq.mu.Unlock()
		if wc.ID = id; ok {
			q.blame(wc, 0, true)
			cq.emit(q, wc, true)
		}
	case wc.ID&idRecv != 0:
		r := &q.recvs
		r.mu.Lock()
		if seq := wc.ID &^ idRecv; r.open(seq) != nil {
			q.driver.reportedRecv(wc, r.sgls.get(seq))
			r.complete(seq, wc)
		}
		cq.advance(q, r)
		r.mu.Unlock()
	default:
		s := &q.sends
		s.mu.Lock()
		if w := s.open(wc.ID); w != nil {
			q.driver.reportedSend(wc, w.op, s.sgls.get(wc.ID))
			s.complete(wc.ID, wc)
		}
		cq.advance(q, s)
		q.admitHeld()
		s.mu.Unlock()
	}
}

// advance moves finished requests from a ledger, whose queue is locked, to soft.
func (cq *ledgerCQ) advance(q *ledgerQP, l *ledgerQueue) {
	for {
		wc, visible, ok := l.next()
		if !ok {
			return
		}
		if visible {
			q.blame(wc, l.at(l.head-1).op, l.receives)
			cq.emit(q, wc, l.receives)
		}
	}
}

// emit adds a completion to soft.
func (cq *ledgerCQ) emit(q *ledgerQP, wc *WC, recv bool) {
	if wc.Status != WCSuccess && q.failedBy(wc.Status) {
		go q.fail(nil)
	}
	if cq.lost.Load() {
		return // completions after an overflow are lost too
	}
	if cq.soft.len() >= cq.CQE() {
		cq.lost.Store(true)
		go cq.overflowed()
		return
	}
	cq.soft.put(*wc)
	cq.waiting.Store(int64(cq.soft.len()))
	cq.all++
	// The device may not report which receives are solicited, so all of them count.
	if recv || wc.Status != WCSuccess {
		cq.urgent++
	}
}
