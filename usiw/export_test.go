// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "time"

// Stalled returns how many bytes the NIC holds for slow peers according to its stall account, how
// many its connections actually hold, and how many receive buffers they keep. The first two are
// equal while the NIC is idle and no connection is closing.
func (n *NIC) Stalled() (account, found int64, buffers int) {
	for _, c := range n.dev.connections() {
		c.q.mu.Lock()
		if c.tx.blocked && !c.tx.busy && c.tx.batch != nil {
			found += c.tx.batch.memory()
		}
		if c.rx.stall.size != 0 {
			found += int64(len(c.rx.part))
		}
		c.q.mu.Unlock()
	}
	return n.dev.stalls.used.Load(), found, int(n.dev.partial.Load())
}

// Crowd makes the NIC use small batches until undo is called.
func (n *NIC) Crowd() (undo func()) {
	s := &n.dev.stalls
	size := s.limit/2 + 1
	if s.reserve(size, time.Now()) > 0 {
		panic("nothing is free")
	}
	return func() { s.give(size) }
}

// Batch returns how many bytes of a QP's stream the socket has accepted, and the size in bytes of
// the batch that waits for room, or 0 if none waits.
func (n *NIC) Batch(qpn uint32) (sent uint64, waits int) {
	for _, c := range n.dev.connections() {
		if c.q.num != qpn {
			continue
		}
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		if c.tx.blocked && !c.tx.busy && c.tx.batch != nil {
			waits = c.tx.batch.size
		}
		return c.tx.sentTo, waits
	}
	return 0, 0
}

// EvictOldest ends the connection of the oldest stall, as a reservation that does not fit would, if
// there are currently the given number of stalls.
func (n *NIC) EvictOldest(stalls int) {
	s := &n.dev.stalls
	s.mu.Lock()
	if len(s.entered) != stalls {
		s.mu.Unlock()
		return
	}
	oldest := s.entered[0]
	s.mu.Unlock()
	oldest.evict(s.limit + 1)
}

// Written sets how many bytes of the arriving Write the NIC believes to have placed.
func (n *NIC) Written(qpn uint32, bytes uint64) {
	for _, c := range n.dev.connections() {
		if c.q.num == qpn {
			c.rx.mu.Lock()
			c.rx.written = bytes
			c.rx.mu.Unlock()
		}
	}
}
