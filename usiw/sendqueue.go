// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "github.com/goverbs/goverbs/verbs"

// chunk is how many send queue entries are allocated at once.
const chunk = 16

// sendEntry is a queued send request. Until the send role starts it (sendQueue.next), it is guarded
// by qp.mu. Then it belongs to the send role, except for sent, answered and status, which qp.mu
// continues to guard.
type sendEntry struct {
	id         uint64
	op         verbs.WROpcode
	flags      verbs.SendFlags
	status     verbs.WCStatus
	sent       bool // the socket has accepted its last byte
	answered   bool // the response to the Read or atomic has been placed
	length     uint32
	rkey       uint32
	invalidate uint32
	msn        uint32 // its message number on queue 0 or 1
	end        uint64 // stream position just after its last byte
	raddr      uint64
	imm        uint64
	operands   operands
	sgl        []verbs.SGE
	inline     []byte
	bind       *binding
}

// operands are the operands of an atomic in wire format, where swap and add share a field.
type operands struct {
	add, addMask, compare, compareMask uint64
}

// awaitsAnswer reports whether the request completes only when the peer answers.
func (e *sendEntry) awaitsAnswer() bool { return e.op == verbs.WRRDMARead || e.isAtomic() }

func (e *sendEntry) isAtomic() bool {
	switch e.op {
	case verbs.WRAtomicCmpAndSwp, verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicCmpAndSwp,
		verbs.WRMaskedAtomicFetchAndAdd:
		return true
	}
	return false
}

func (e *sendEntry) isWrite() bool {
	return e.op == verbs.WRRDMAWrite || e.op == verbs.WRRDMAWriteWithImm
}

// isLocal reports whether the request is performed locally, without sending anything.
func (e *sendEntry) isLocal() bool { return e.op == verbs.WRBindMW || e.op == verbs.WRLocalInv }

// done reports whether the request is complete.
func (e *sendEntry) done() bool { return e.sent && (e.answered || !e.awaitsAnswer()) }

// sendQueue is a ring of requests. Entries do not move, so the send role can use the current one
// without a lock.
//
//	head <= sentTo <= next <= tail
//	completed | in the socket, unanswered | begun | waiting | free
//
// The fields are guarded by qp.mu.
type sendQueue struct {
	chunks []*[chunk]sendEntry
	limit  uint64
	head   uint64 // oldest request that is not complete
	sentTo uint64 // oldest request not fully accepted by the socket
	next   uint64 // oldest request that the send role has not started
	tail   uint64 // position of the next request to be posted
}

func (s *sendQueue) init(c verbs.QPCap) {
	s.limit = uint64(c.MaxSendWR)
	s.chunks = make([]*[chunk]sendEntry, (c.MaxSendWR+chunk-1)/chunk)
}

func (s *sendQueue) full() bool  { return s.tail-s.head == s.limit }
func (s *sendQueue) empty() bool { return s.tail == s.head }

// at returns the entry at a position from head to tail.
func (s *sendQueue) at(i uint64) *sendEntry {
	i %= uint64(len(s.chunks)) * chunk
	return &s.chunks[i/chunk][i%chunk]
}

// push returns the entry for a new request. The queue must have room.
func (s *sendQueue) push(c verbs.QPCap) *sendEntry {
	slot := &s.chunks[s.tail%(uint64(len(s.chunks))*chunk)/chunk]
	if *slot == nil {
		*slot = new([chunk]sendEntry)
		sges := make([]verbs.SGE, chunk*c.MaxSendSGE)
		for i := range *slot {
			(*slot)[i].sgl = sges[i*c.MaxSendSGE : i*c.MaxSendSGE : (i+1)*c.MaxSendSGE]
		}
	}
	e := s.at(s.tail)
	s.tail++
	return e
}

func (s *sendQueue) oldest() *sendEntry { return s.at(s.head) }

func (s *sendQueue) pop() {
	s.oldest().bind = nil
	s.head++
	s.sentTo = max(s.sentTo, s.head)
	s.next = max(s.next, s.head)
}

// clear empties the queue.
func (s *sendQueue) clear() { s.head, s.sentTo, s.next, s.tail = 0, 0, 0, 0 }
