// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "sync/atomic"

// A ledger is a shadow queue. It tracks the requests of one queue for devices that complete
// requests out of order or lose them: whatever the device reports, in whatever order, each request
// completes once and in posting order, and those after an error are flushed. Requests are
// identified by a sequence number, which the device gets as wr_id.
//
// The owner's lock guards a ledger.
type ledger struct {
	ring []slot // a power of 2
	head uint64 // sequence number of the oldest outstanding request
	tail uint64 // sequence number of the next request
	most uint64 // 1 + the highest sequence number that the device completed
	// failed: a request completed with an error, so all later ones do.
	failed bool
	// poisoned: an accepted request is going to fail, so no further ones go to the device.
	poisoned bool
	lent     int // slots posted to the device
	reads    int // those of lent that are Reads or atomics
	firsts   int // first parts of requests among all slots
	// hidden counts, for the CQ, requests that the device will report but that are hidden from the
	// poller. It may be nil.
	hidden *atomic.Int64
}

type slot struct {
	wc       WC // ID is set when the slot is added, the rest by the completion
	state    slotState
	visible  bool   // generates a completion on success
	reported bool   // the device reports it on success
	read     bool   // an RDMA Read, or a part of one, or an atomic
	first    bool   // the first part of the request in the next slot, which completes with their joint result
	before   uint32 // ByteLen of the first part
	op       WROpcode
}

type slotState uint8

const (
	slotHeld slotState = iota // held back from the device
	slotLent                  // posted to the device
	slotDone                  // wc is complete
)

// slots returns the number of slots in use.
func (t *ledger) slots() int { return int(t.tail - t.head) }

// requests returns the number of outstanding requests: those that next has not returned yet.
func (t *ledger) requests() int { return t.slots() - t.firsts }

// enter updates the counts for a slot that comes into use (n = 1) or goes out of use (n = -1).
func (t *ledger) enter(s *slot, n int) {
	t.count(s, n)
	t.hide(s, int64(n))
	if s.first {
		t.firsts += n
	}
}

// count adds a slot to the counts of its state (n = 1) or removes it (n = -1).
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

// add appends a request and returns its sequence number.
func (t *ledger) add(id uint64, state slotState, visible, reported bool) uint64 {
	return t.push(slot{wc: WC{ID: id}, state: state, visible: visible, reported: reported})
}

// push appends a slot and returns its sequence number.
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

// lend records that a request was posted to the device.
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

// withdraw removes the last n requests, which the device refused.
func (t *ledger) withdraw(n int) {
	for range n {
		t.tail--
		t.enter(t.at(t.tail), -1)
	}
}

// open returns the slot of a request that has not completed, otherwise nil.
func (t *ledger) open(seq uint64) *slot {
	if seq-t.head >= t.tail-t.head {
		return nil
	}
	if s := t.at(seq); s.state != slotDone {
		return s
	}
	return nil
}

// complete records the device's completion of a request. It returns false if the request had
// already completed.
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

// fail completes, with an error, a request that never reached the device.
func (t *ledger) fail(seq uint64, status WCStatus, qpNum uint32) {
	s := t.at(seq)
	s.wc.Status, s.wc.QPNum = status, qpNum
	t.set(s, slotDone)
	t.poisoned = true
}

// flush completes all open requests. The device must no longer access their memory.
func (t *ledger) flush(qpNum uint32) {
	for seq := t.head; seq != t.tail; seq++ {
		s := t.at(seq)
		if s.state != slotDone {
			s.wc.Status, s.wc.QPNum = WCWRFlushErr, qpNum
			t.set(s, slotDone)
		}
	}
}

// drop discards all requests and clears the error state.
func (t *ledger) drop() {
	for ; t.head != t.tail; t.head++ {
		t.enter(t.at(t.head), -1)
	}
	t.failed, t.poisoned = false, false
}

// next removes and returns the oldest request if it has completed. A request whose success the
// device does not report has completed once a later one has.
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

// join merges a completed first part into the second part, which is now the oldest slot. If the
// first part failed, so did the request.
func (t *ledger) join(first *slot) {
	s := t.at(t.head)
	s.before = first.wc.ByteLen
	if first.wc.Status == WCSuccess {
		return
	}
	s.wc = first.wc
	t.set(s, slotDone)
}
