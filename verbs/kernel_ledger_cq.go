// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"math"
	"sync/atomic"
)

// ledgerCQ is the CQ of a device that does not keep libibverbs' promises. All completions go
// through soft: those of the device are entered into the ledgers of the QPs, and the ledgers give
// out each request that has ended, in order.
type ledgerCQ struct {
	kernelCQ
	unsolicited bool // the device counts no completion as solicited

	waiting   atomic.Int64 // completions in soft
	hidden    atomic.Int64 // requests that the device will report and that the program does not see
	held      atomic.Int64 // requests of the QPs that wait for admission
	selfPolls atomic.Bool  // see selfPoll

	ledgers members[ledgerQP] // guarded by mu, as what follows
	// How many completions have come, and how many of them wake a goroutine that waits for
	// solicited ones.
	all, urgent uint64
	armed       bool
	armedUrgent bool   // for solicited ones
	armedAt     uint64 // all, or urgent, when it was armed
}

// hiddenSlack is how much larger the device's CQ is made than the program asks for, because the
// device also reports requests that the program does not see.
const hiddenSlack = 1024

// newLedgerCQ makes a completion queue.
func newLedgerCQ(c *kernelContext, owner *CQ, cqe int, ch ProviderCompChannel, vector int,
	unsolicited bool) (ProviderCQ, error) {
	cq := &ledgerCQ{unsolicited: unsolicited}
	if err := cq.create(c, owner, withSlack(c, cqe), ch, vector, cq); err != nil {
		return nil, err
	}
	return cq, nil
}

func withSlack(c *kernelContext, cqe int) int { return min(cqe+hiddenSlack, max(cqe, c.attr.MaxCQE)) }

// Resize changes the room.
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

// Poll takes completions from soft.
func (cq *ledgerCQ) Poll(wcs []WC) (int, error) {
	if len(wcs) == 0 {
		return 0, nil
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	want := len(wcs)
	if cq.selfPolls.Load() {
		want = math.MaxInt // to find an overflow that has happened already
	}
	err := cq.fetch(want)
	n := cq.soft.take(wcs)
	cq.waiting.Store(int64(cq.soft.len()))
	return n, cq.softError(n, err)
}

// fetch takes completions from the device until soft holds want of them or the device has no more.
func (cq *ledgerCQ) fetch(want int) error {
	return cq.fetchTo(want, func(wcs []WC) {
		for i := range wcs {
			cq.accept(&wcs[i])
		}
	})
}

// fetchAll takes all completions that the device has.
func (cq *ledgerCQ) fetchAll() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	_ = cq.fetch(math.MaxInt) // a CQ that cannot be polled has nothing
	cq.ring()
}

// Bits of the wr_id that the device gets: the rest is the number in the queue's ledger, or in the
// SRQ's.
const (
	idRecv = 1 << 63
	idSRQ  = 1 << 62
	idOwn  = 1 << 61 // no number follows: a request of the provider's own, which is in no ledger
)

// accept enters a completion of the device's into the ledger of its request.
func (cq *ledgerCQ) accept(wc *WC) {
	q := cq.ledgers.find(wc.QPNum)
	if q == nil {
		return // the QP is gone, and its requests have been flushed
	}
	switch {
	case wc.ID == idOwn: // it was flushed
	case wc.ID&idSRQ != 0:
		srq := q.srq
		if srq == nil {
			return // no request of ours: a program has written to the ring
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

// advance moves what has ended from a ledger, whose queue is locked, to soft.
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

// emit puts a completion into soft.
func (cq *ledgerCQ) emit(q *ledgerQP, wc *WC, recv bool) {
	if wc.Status != WCSuccess && q.failedBy(wc.Status) {
		go q.fail(nil)
	}
	if cq.lost.Load() {
		return // what comes after an overflow is lost too
	}
	if cq.soft.len() >= cq.CQE() {
		cq.lost.Store(true)
		go cq.overflowed()
		return
	}
	cq.soft.put(*wc)
	cq.waiting.Store(int64(cq.soft.len()))
	cq.all++
	// The device may not tell which receives are solicited: all of them count.
	if recv || wc.Status != WCSuccess {
		cq.urgent++
	}
}
