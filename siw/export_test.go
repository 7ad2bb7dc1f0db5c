// SPDX-License-Identifier: BSD-3-Clause

package siw

import "time"

// Stalled returns what the NIC's account says that it holds for slow peers, in bytes, what its connections are found to hold,
// and how many receive buffers they keep. The first two are the same when nothing happens and no connection is ending.
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

// Crowd has the NIC make small batches until undo is called.
func (n *NIC) Crowd() (undo func()) {
	s := &n.dev.stalls
	size := s.limit/2 + 1
	if s.reserve(size, time.Now()) > 0 {
		panic("nothing is free")
	}
	return func() { s.give(size) }
}
