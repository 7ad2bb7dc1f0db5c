// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "sync/atomic"

// A ledger keeps account of the requests of one queue, for devices that do not complete requests in
// the order of posting, or not all of them: whatever the device reports, and in whatever order,
// each request ends once and in order, and what follows an error is flushed. Requests are known by
// a sequence number, which the device gets for wr_id.
//
// The owner's lock guards it.
type ledger struct {
	ring []slot // a power of 2
	head uint64 // sequence number of the oldest request that has not ended
	tail uint64 // of the next request
	most uint64 // 1 + the highest one that the device has completed
	// failed: a request has ended with an error, so all others do.
	failed bool
	// poisoned: a request has been accepted that will fail, so the device gets no other.
	poisoned bool
	lent     int // slots that the device has
	reads    int // those of them that are Reads or atomics
	firsts   int // first parts of requests among all slots
	// hidden counts, for the CQ, requests that the device will report and the poller does not see.
	// It may be nil.
	hidden *atomic.Int64
}

type slot struct {
	wc       WC // ID from the start, the rest from the completion
	state    slotState
	visible  bool   // makes a completion on success
	reported bool   // the device reports it on success
	read     bool   // an RDMA Read, or a part of one, or an atomic
	first    bool   // the first part of the request in the next slot, which ends with what both have come to
	before   uint32 // ByteLen of the first part
	op       WROpcode
}

type slotState uint8

const (
	slotHeld slotState = iota // the device has not got it
	slotLent                  // the device has it
	slotDone                  // wc is complete
)

// slots is how many slots are in use.
func (t *ledger) slots() int { return int(t.tail - t.head) }

// requests is how many requests have not ended, each in its turn.
func (t *ledger) requests() int { return t.slots() - t.firsts }

// enter counts a slot that comes into use, or leaves it for n = -1.
func (t *ledger) enter(s *slot, n int) {
	t.count(s, n)
	t.hide(s, int64(n))
	if s.first {
		t.firsts += n
	}
}

// count counts a slot in its state, or takes it out of the counts for n = -1.
func (t *ledger) count(s *slot, n int) {
	if s.state == slotLent {
		t.lent += n
		if s.read {
			t.reads += n
		}
	}
}

func (t *ledger) set(s *slot, state slotState) {
	t.count(s, -1)
	s.state = state
	t.count(s, 1)
}

// add appends a request and returns its number.
func (t *ledger) add(id uint64, state slotState, visible, reported bool) uint64 {
	return t.push(slot{wc: WC{ID: id}, state: state, visible: visible, reported: reported})
}

// push appends a slot and returns its number.
func (t *ledger) push(s slot) uint64 {
	if t.slots() == len(t.ring) {
		t.grow()
	}
	at := t.at(t.tail)
	*at = s
	t.enter(at, 1)
	t.tail++
	return t.tail - 1
}

// lend notes that the device has got a request.
func (t *ledger) lend(seq uint64) { t.set(t.at(seq), slotLent) }

func (t *ledger) hide(s *slot, n int64) {
	if t.hidden != nil && s.reported && !s.visible {
		t.hidden.Add(n)
	}
}

func (t *ledger) grow() {
	ring := make([]slot, max(16, 2*len(t.ring)))
	for seq := t.head; seq != t.tail; seq++ {
		ring[seq&uint64(len(ring)-1)] = *t.at(seq)
	}
	t.ring = ring
}

func (t *ledger) at(seq uint64) *slot { return &t.ring[seq&uint64(len(t.ring)-1)] }

// withdraw takes back the last n requests, which the device refused.
func (t *ledger) withdraw(n int) {
	for range n {
		t.tail--
		t.enter(t.at(t.tail), -1)
	}
}

// open returns a request that has not ended, nil if it has.
func (t *ledger) open(seq uint64) *slot {
	if seq-t.head >= t.tail-t.head {
		return nil
	}
	if s := t.at(seq); s.state != slotDone {
		return s
	}
	return nil
}

// complete notes what the device reported of a request. It is false for one that has ended already.
func (t *ledger) complete(seq uint64, wc *WC) bool {
	s := t.open(seq)
	if s == nil {
		return false
	}
	id := s.wc.ID
	s.wc = *wc
	s.wc.ID = id
	t.set(s, slotDone)
	if seq >= t.most {
		t.most = seq + 1
	}
	return true
}

// fail completes a request that the device did not get.
func (t *ledger) fail(seq uint64, status WCStatus, qpNum uint32) {
	s := t.at(seq)
	s.wc.Status, s.wc.QPNum = status, qpNum
	t.set(s, slotDone)
	t.poisoned = true
}

// flush completes all that is open. The device must not touch any of it any more.
func (t *ledger) flush(qpNum uint32) {
	for seq := t.head; seq != t.tail; seq++ {
		s := t.at(seq)
		if s.state != slotDone {
			s.wc.Status, s.wc.QPNum = WCWRFlushErr, qpNum
			t.set(s, slotDone)
		}
	}
}

// drop forgets all that is open.
func (t *ledger) drop() {
	for ; t.head != t.tail; t.head++ {
		t.enter(t.at(t.head), -1)
	}
	t.failed, t.poisoned = false, false
}

// next returns the oldest request if it has ended, and takes it out. A request whose success the
// device does not report has ended when a later one has.
func (t *ledger) next() (wc *WC, visible, ok bool) {
	if t.head == t.tail {
		return nil, false, false
	}
	s := t.at(t.head)
	switch {
	case s.state == slotDone:
	case s.state == slotLent && !s.reported && t.head < t.most:
		t.set(s, slotDone)
	default:
		return nil, false, false
	}
	t.head++
	t.enter(s, -1)
	if s.first {
		t.join(s)
		return &s.wc, false, true
	}
	s.wc.ByteLen += s.before
	if s.wc.Status == WCSuccess && t.failed {
		s.wc.Status = WCWRFlushErr
	}
	if s.wc.Status != WCSuccess {
		t.failed = true
		s.wc = WC{ID: s.wc.ID, Status: s.wc.Status, VendorErr: s.wc.VendorErr, QPNum: s.wc.QPNum}
		return &s.wc, true, true
	}
	return &s.wc, s.visible, true
}

// join adds a first part that has ended to the other one, which is now the oldest. If it has
// failed, so has the request.
func (t *ledger) join(first *slot) {
	s := t.at(t.head)
	s.before = first.wc.ByteLen
	if first.wc.Status == WCSuccess {
		return
	}
	s.wc = first.wc
	t.set(s, slotDone)
}
