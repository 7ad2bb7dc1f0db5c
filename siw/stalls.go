// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// stalls is the account of what a NIC holds for peers that have stopped half-way, in bytes of memory: batches for which the
// socket has no room, copies of parts of FPDUs whose rest has not come, and the tail of what a connection that ends still
// sends. A stall is one such batch or part.
//
//	        reserve           enter
//	none ------------> paid ---------> entered    nobody has the role; the memory waits for the peer
//	  ^                  | give           |
//	  +------------------+<---------------+
//	                        leave: room, bytes, or the end of the connection
//	                        evict: others need the space; the connection ends
//
// Invariants:
//
//  1. What is not paid is not left waiting: used is never above limit. Memory with which somebody works at the moment, in a
//     role, is not in the account; as many as run can have some.
//  2. A stall is entered and leaves under the mutex of its QP, and it has left before its role is taken. So who holds that
//     mutex and finds it entered may let go of its memory: nobody looks at it.
//  3. A stall is as old as the batch or the part is: that a little of it has moved does not make it younger.
//  4. A connection that has ended pays for the tail of the FPDU that was cut only if half of limit is free; else it goes
//     without, and without a Terminate. CloseTimeout bounds this.
//  5. A reservation that does not fit evicts the oldest stall until it does, or fails if it would be the oldest itself. Its
//     caller holds no QP's mutex, and nobody waits: to evict is to let go of memory and to start the connection's end.
//  6. While more than half of limit is used, new batches are small. So many peers that are only slow share the other half, and
//     become slower.
type stalls struct {
	limit int64
	used  atomic.Int64 // changed under mu; read without it by crowded

	mu      sync.Mutex // below every qp's mu
	entered stallHeap
}

// stall is what one side of a connection holds, if it does.
type stall struct {
	c     *conn
	since time.Time // when the batch or part was first held
	size  int64     // bytes; 0 = not entered
	at    int       // stalls.mu: place in entered
}

// crowded reports whether batches should be small.
func (s *stalls) crowded() bool { return s.used.Load() > s.limit/2 }

// reserve pays for n bytes that have been held since the given time. If they would be the oldest of more than there may be it
// does not, and returns how much that would be. The caller holds no QP's mutex.
func (s *stalls) reserve(n int64, since time.Time) (over int64) {
	for {
		over, oldest := s.try(n, since)
		if oldest == nil {
			return over
		}
		oldest.evict(over)
	}
}

// try is reserve, but it evicts nobody: it returns whom to evict.
func (s *stalls) try(n int64, since time.Time) (over int64, oldest *stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.used.Load() + n
	if sum <= s.limit {
		s.used.Add(n)
		return 0, nil
	}
	if len(s.entered) > 0 && s.entered[0].since.Before(since) {
		oldest = s.entered[0]
	}
	return sum, oldest
}

// reserveTail pays for n bytes of a connection that has ended and sends them yet. Those leave half of limit to others, since
// they cannot be evicted.
func (s *stalls) reserveTail(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.used.Load()+n > s.limit/2 {
		return false
	}
	s.used.Add(n)
	return true
}

// give takes back a reservation.
func (s *stalls) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Add(-n)
}

// enter makes a reservation of n bytes one that can be evicted. The caller holds the mutex of st's QP.
func (s *stalls) enter(st *stall, n int64, since time.Time) {
	st.since, st.size = since, n
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Push(&s.entered, st)
}

// leave takes st out of the account, if it is there, and reports that. The caller holds the mutex of st's QP.
func (s *stalls) leave(st *stall) bool {
	if st.size == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Remove(&s.entered, st.at)
	s.used.Add(-st.size)
	st.size = 0
	return true
}

// evict lets go of st's memory and ends its connection because so much would be held.
func (st *stall) evict(over int64) {
	c := st.c
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	switch {
	case st.size == 0: // it has left meanwhile
	case st == &c.tx.stall:
		c.sever(over, st.since)
	default:
		c.failLocked(c.dev.stalls.exceeded("peer has not sent the rest of an FPDU", over, st.since), nil)
		c.dev.stalls.leave(st)
		c.rx.part = nil
	}
}

// sever ends the connection because its batch cannot be held: the stream ends in the middle of it. The caller holds q.mu, and
// nobody, or the caller, has the send role.
func (c *conn) sever(over int64, since time.Time) {
	c.failLocked(c.dev.stalls.exceeded("peer has not taken data", over, since), nil)
	c.tx.severed = true
	c.tx.cut(&c.dev.stalls)
}

// exceeded is why a connection ends without which so much would be held.
func (s *stalls) exceeded(what string, over int64, since time.Time) error {
	return fmt.Errorf("%s for %v, and the NIC holds too much for such peers: %w", what, time.Since(since).Round(time.Millisecond),
		&verbs.LimitError{Name: "Config.MaxStalled", Limit: uint64(s.limit), Value: uint64(over)})
}

// stallHeap has the oldest stall first.
type stallHeap []*stall

func (h stallHeap) Len() int           { return len(h) }
func (h stallHeap) Less(i, j int) bool { return h[i].since.Before(h[j].since) }
func (h stallHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

func (h *stallHeap) Push(x any) {
	st := x.(*stall)
	st.at = len(*h)
	*h = append(*h, st)
}

func (h *stallHeap) Pop() any {
	last := len(*h) - 1
	st := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return st
}
