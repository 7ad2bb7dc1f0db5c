// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// stalls accounts for the memory, in bytes, that a NIC holds for stalled peers: batches for which
// the socket has no room, copies of incomplete FPDUs, and the bytes that a closing connection still
// sends. A stall is one such batch or incomplete FPDU.
//
//	        reserve           enter
//	none ------------> paid ---------> entered    the role is free; the memory waits for the peer
//	  ^                  | give           |
//	  +------------------+<---------------+
//	                        leave: there is room, bytes have arrived, or the connection ends
//	                        evict: others need the space; the connection ends
//
// Invariants:
//
//  1. Memory waits for a peer only if it has been reserved here, so used never exceeds limit.
//     Memory in use by the holder of a role is not counted; every running goroutine may have some.
//  2. A stall enters and leaves under the mutex of its QP, and it leaves before its role is taken.
//     A goroutine that holds this mutex and finds the stall entered may therefore release its
//     memory: no other goroutine uses it.
//  3. The age of a stall is the age of its batch or incomplete FPDU. Sending or receiving some of
//     the bytes does not make it younger.
//  4. A closing connection reserves memory for the rest of a partly sent FPDU. Such reservations
//     may use up to half of limit; if there is no room, neither the rest nor a Terminate is sent.
//     CloseTimeout bounds how long the memory is held.
//  5. A reservation that does not fit evicts the oldest stalls until it fits. It fails if it would
//     be the oldest itself. Its caller holds no QP mutex, and does not wait: an eviction releases
//     memory and starts the shutdown of the connection.
//  6. While more than half of limit is used, new batches are small. Many peers that are merely slow
//     then share the other half, and become slower.
type stalls struct {
	limit int64
	used  atomic.Int64 // changed under mu; read without it by crowded

	mu      sync.Mutex // guards entered; taken after a qp's mu
	entered stallHeap
}

// stall is the entry for one direction of a connection.
type stall struct {
	c     *conn
	since time.Time // when the batch or partial FPDU was first held
	size  int64     // bytes; 0 = not entered
	at    int       // index in entered; guarded by stalls.mu
}

// crowded reports whether batches should be small.
func (s *stalls) crowded() bool { return s.used.Load() > s.limit/2 }

// reserve reserves n bytes that have been held since the given time. If they do not fit and would
// be the oldest, it reserves nothing and returns the total that would be held. The caller holds no
// QP mutex.
func (s *stalls) reserve(n int64, since time.Time) (over int64) {
	for {
		over, oldest := s.try(n, since)
		if oldest == nil {
			return over
		}
		oldest.evict(over)
	}
}

// try is like reserve but evicts nothing: it returns the stall to evict first, or nil if there is
// none.
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

// reserveTail reserves n bytes that a closing connection still sends. They cannot be evicted, so it
// reports false if more than half of limit would be used with them.
func (s *stalls) reserveTail(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && s.used.Load()+n > s.limit/2 {
		return false
	}
	s.used.Add(n)
	return true
}

// give releases a reservation.
func (s *stalls) give(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used.Add(-n)
}

// enter turns a reservation of n bytes into a stall that can be evicted. The caller holds the mutex
// of st's QP.
func (s *stalls) enter(st *stall, n int64, since time.Time) {
	st.since, st.size = since, n
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Push(&s.entered, st)
}

// leave removes st from the account. It reports false if st is not entered. The caller holds the
// mutex of st's QP.
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

// evict releases the memory of st and ends its connection. over is the total that would otherwise
// be held.
func (st *stall) evict(over int64) {
	c := st.c
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	switch {
	case st.size == 0: // st has left in the meantime
	case st == &c.tx.stall:
		c.sever(over, st.since)
	default:
		c.failLocked(c.dev.stalls.exceeded("peer has not sent the rest of an FPDU", over, st.since), nil)
		c.dev.stalls.leave(st)
		c.rx.part = nil
	}
}

// sever ends the connection because its batch cannot be held: the stream ends in the middle of the
// batch. The caller holds q.mu, and no other goroutine has the send role.
func (c *conn) sever(over int64, since time.Time) {
	c.failLocked(c.dev.stalls.exceeded("peer has not taken data", over, since), nil)
	c.tx.severed = true
	c.tx.cut(&c.dev.stalls)
}

// exceeded returns the error of a connection that is ended because otherwise over bytes would be
// held.
func (s *stalls) exceeded(what string, over int64, since time.Time) error {
	return fmt.Errorf("%s for %v, and the NIC holds too much for such peers: %w", what,
		time.Since(since).Round(time.Millisecond),
		&verbs.LimitError{Name: "Config.MaxStalled", Limit: uint64(s.limit), Value: uint64(over)})
}

// stallHeap is a heap of stalls, oldest first (container/heap).
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
