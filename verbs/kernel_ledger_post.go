// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"cmp"
	"errors"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// splitReads marks the requests of a list that are the first parts of the requests that follow
// them. nil = none.
type splitReads []bool

func (s splitReads) has(i int) bool { return i >= 0 && i < len(s) && s[i] }

// among returns how many of the first n requests are first parts.
func (s splitReads) among(n int) int {
	sum := 0
	for i := range min(n, len(s)) {
		if s[i] {
			sum++
		}
	}
	return sum
}

// Defaults for drivers that change nothing.

func (q *ledgerQP) split(wrs []SendWR) ([]SendWR, splitReads) { return wrs, nil }
func (q *ledgerQP) adapt(*sendList)                           {}

// PostSend enters a list into the ledger and posts to the device, in one call, the requests that
// may proceed.
func (q *ledgerQP) PostSend(wrs []SendWR) (int, error) {
	if q.windows.named(wrs) {
		q.windows.use.RLock()
		defer q.windows.use.RUnlock()
	}
	own, err := q.ownObjects(wrs)
	n, failed := q.postOwn(wrs[:own])
	return n, cmp.Or(failed, err)
}

// postOwn posts requests that refer only to objects of this provider.
func (q *ledgerQP) postOwn(wrs []SendWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	s := &q.sends
	s.mu.Lock()
	// The device's own queue is longer than requested, so its room says nothing about the
	// program's. Polling comes before the look at the state, which can change while the queue is
	// unlocked.
	if s.requests()+len(wrs) > q.cap.MaxSendWR {
		q.relieveSends()
	}
	st := q.qpState()
	switch {
	case st < QPStateRTS:
		s.mu.Unlock()
		return 0, sendsBefore(st)
	case st == QPStateErr || s.poisoned:
		s.mu.Unlock()
		return q.keepSends(wrs)
	}
	defer s.mu.Unlock()
	wrs, full := cutToRoom(wrs, q.cap.MaxSendWR-s.requests())
	good := q.possible(wrs)
	if good > 0 {
		if n, err := q.postPossible(wrs[:good]); err != nil {
			return n, err
		}
	}
	if good < len(wrs) {
		s.poisoned = true
		s.mu.Unlock()
		n, err := q.keepSends(wrs[good:])
		s.mu.Lock()
		if err != nil {
			return good + n, err
		}
	}
	return len(wrs), full
}

// cutToRoom returns the part of a list that fits into room, and an error if that is not all of it.
func cutToRoom[T any](wrs []T, room int) ([]T, error) {
	if room = max(room, 0); len(wrs) > room {
		return wrs[:room], ErrQueueFull
	}
	return wrs, nil
}

// possible returns the number of requests before the first one that would stop the device's queue
// for good.
func (q *ledgerQP) possible(wrs []SendWR) int {
	if q.needsDepth && q.ord.Load() == 0 {
		for i := range wrs {
			if needsORD(wrs[i].Opcode) {
				return i
			}
		}
	}
	return len(wrs)
}

// needsORD reports whether a request counts against the limit of outstanding Reads and atomics.
func needsORD(op WROpcode) bool {
	switch op {
	case WRRDMARead, WRAtomicCmpAndSwp, WRAtomicFetchAndAdd, WRMaskedAtomicCmpAndSwp, WRMaskedAtomicFetchAndAdd,
		WRAtomicWrite:
		return true
	}
	return false
}

// postPossible posts requests for which the queue has room.
func (q *ledgerQP) postPossible(wrs []SendWR) (int, error) {
	list, split := q.driver.split(wrs)
	q.send.fill(list)
	q.driver.adapt(&q.send.sendList)
	for i := range q.send.wrs {
		q.send.wrs[i].ID = q.enter(&list[i], split.has(i))
		q.send.wrs[i].Op |= uint32(SendSignaled) << ibverbs.FlagsShift
	}
	if n, err := q.admit(); err != nil {
		if !errors.Is(err, errBroken) && !split.has(n-1) {
			q.sends.withdraw(len(list) - n)
			q.windows.withdrawn(q, q.sends.tail)
			return n - split.among(n), err
		}
		// They are in the device's queue and may or may not be executed. Those that are not are
		// flushed.
		go q.fail(err)
	}
	q.lookAfterSends()
	return len(wrs), nil
}

// enter enters a request, or the first part of one, into the ledger. The device receives it later.
func (q *ledgerQP) enter(w *SendWR, first bool) uint64 {
	seq := q.sends.push(slot{wc: WC{ID: w.ID}, op: w.Opcode, read: needsORD(w.Opcode), first: first,
		visible: !first && (q.sigAll || w.Flags&SendSignaled != 0), reported: true})
	if w.Flags&SendInline == 0 {
		q.sends.sgls.put(seq, w.SGL)
	} else {
		q.sends.sgls.put(seq, nil)
	}
	switch w.Opcode {
	case WRBindMW, WRLocalInv:
		q.windows.posted(q, seq, w)
	}
	return seq
}

// relieveSends polls completions from the device. It unlocks the queue meanwhile.
func (q *ledgerQP) relieveSends() {
	q.sends.mu.Unlock()
	q.sends.cq.relieve()
	q.sends.mu.Lock()
}

// lookAfterSends makes sure that the CQ has room for the completions of the requests just posted.
// It may unlock the queue meanwhile.
func (q *ledgerQP) lookAfterSends() {
	if q.sends.cq.hidden.Load() > hiddenSlack/2 {
		q.relieveSends()
	}
	q.sends.cq.selfPoll(q.sends.lent + q.admission.len())
}

// PostRecv enters a list into the ledger and posts it in one call.
func (q *ledgerQP) PostRecv(wrs []RecvWR) (int, error) {
	if len(wrs) == 0 {
		return 0, nil
	}
	r := &q.recvs
	r.mu.Lock()
	if r.requests()+len(wrs) > q.cap.MaxRecvWR { // as in PostSend
		r.mu.Unlock()
		r.cq.relieve()
		r.mu.Lock()
	}
	switch st := q.qpState(); st {
	case QPStateReset:
		r.mu.Unlock()
		return 0, recvsBefore(st)
	case QPStateErr:
		r.mu.Unlock()
		return q.keepRecvs(wrs)
	}
	defer r.mu.Unlock()
	wrs, full := cutToRoom(wrs, q.cap.MaxRecvWR-r.requests())
	if len(wrs) == 0 {
		return 0, full
	}
	flat := &q.recv.flat
	flat.fill(wrs, q.least)
	for i := range flat.wrs {
		seq := r.add(wrs[i].ID, slotLent, true, true)
		r.sgls.put(seq, wrs[i].SGL)
		flat.wrs[i].ID = idRecv | seq
	}
	n, err := postResult("ibv_post_recv", q.c.Recv(flat.wrs, flat.sges, nil))
	if err != nil {
		r.withdraw(len(wrs) - n)
		return n, err
	}
	return n, full
}

// keepSends enters requests that the device does not receive: those of a QP in ERR, to be flushed,
// or those of a poisoned queue, of which the first is the request that will fail.
func (q *ledgerQP) keepSends(wrs []SendWR) (int, error) {
	s := &q.sends
	return keep(q, s, wrs, q.cap.MaxSendWR, func(w *SendWR) {
		seq := s.push(slot{wc: WC{ID: w.ID}, op: w.Opcode, state: slotHeld, visible: true})
		if needsORD(w.Opcode) && s.poisoned && !q.bad && q.qpState() != QPStateErr {
			q.bad = true
			s.fail(seq, WCLocQPOpErr, q.num)
		}
	})
}

// keepRecvs enters receives of a QP in ERR, to be flushed.
func (q *ledgerQP) keepRecvs(wrs []RecvWR) (int, error) {
	return keep(q, &q.recvs, wrs, q.cap.MaxRecvWR, func(w *RecvWR) { q.recvs.add(w.ID, slotHeld, true, false) })
}

// keep enters requests that the device does not receive into a ledger, and releases finished ones.
func keep[T any](q *ledgerQP, l *ledgerQueue, wrs []T, most int, enter func(*T)) (int, error) {
	l.cq.mu.Lock()
	defer l.cq.mu.Unlock()
	// Earlier requests may have completed. If the library fails here, the next Poll reports it.
	_ = l.cq.fetch(l.cq.soft.len() + batch)
	l.mu.Lock()
	defer l.mu.Unlock()
	var full error
	if !l.flushed {
		wrs, full = cutToRoom(wrs, most-l.requests())
	}
	for i := range wrs {
		enter(&wrs[i])
	}
	if l.flushed {
		l.flush(q.num)
	}
	l.cq.advance(q, l)
	l.cq.ring()
	return len(wrs), full
}
