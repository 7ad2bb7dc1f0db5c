// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/siw/mpa"
)

// How much a holder of the send role sends in a row. A poster, or who receives, then has a goroutine go on for it; that goroutine, and
// the one that waits for room, let others run (yielder).
const (
	inlineBatches = 16
	inlineBytes   = 2 << 20
)

// task is what the send role is in the middle of.
type task uint8

const (
	taskNone     task = iota
	taskRequest       // entry, from offset off
	taskImm           // entry: the Immediate Data behind a Write
	taskResponse      // resp, from offset off
)

// sender is the send side of a connection. The send role (busy) is taken under q.mu and never waits: a holder that finds
// the socket full leaves the rest in the batch and lets one goroutine per connection wait for room.
type sender struct {
	busy    bool      // mu: somebody holds the role
	again   bool      // mu: something was queued meanwhile
	blocked bool      // mu: the socket is full
	waiter  bool      // mu: waitWritable runs
	hold    bool      // mu: the peer is to speak first; see hold.go
	idle    sync.Cond // on q.mu: busy has become false

	holdTimer *time.Timer  // mu: bounds hold, if that is ours to do
	last      *termination // mu: what follows the responses that are owed, and ends the connection
	grace     *time.Timer  // mu: bounds them

	stall   stall // mu: the batch, while it is blocked
	severed bool  // mu: the batch was given up; the stream ends in the middle of an FPDU

	responses   ring[response] // mu
	outstanding int            // mu: Reads and atomics without an answer
	reads       ring[uint64]   // mu: positions in the send queue of the Reads among them
	atomics     ring[uint64]   // mu: of the atomics
	sentTo      uint64         // mu: bytes of the stream that are in the socket

	// The send role's.
	batch  *batch
	task   task
	entry  *sendEntry
	resp   response
	off    uint32
	burst  int
	broken error     // of the test hook
	built  uint64    // bytes of the stream that have been put into batches
	mulpdu int       // most bytes of a ULPDU
	sized  uint64    // built when that was found out
	sendNo [2]uint32 // the last MSN on queues 0 and 1
	respNo uint32    // the last MSN on queue 3
}

func (t *sender) init(q *qp, agreed *setup) {
	t.idle.L = &q.mu
	t.hold = agreed.hold
	t.built = uint64(len(agreed.opening))
	t.sentTo = t.built
	switch agreed.openedBy {
	case RTRRead:
		t.sendNo[1], t.outstanding = 1, 1
	case RTRSend:
		t.sendNo[0] = 1
	}
}

// mulpdu returns the largest ULPDU for a stream whose segments have the given size, 0 = not known.
func (d *device) mulpdu(segment int, markers bool) int {
	if segment <= 0 || segment > d.cfg.MTU {
		segment = d.cfg.MTU
	}
	return mpa.MULPDU(segment, markers)
}

// sizeEvery is how many bytes are sent before it is found out again how many travel together: the way to the peer may have
// changed (RFC 5044 section 4.5). It costs a system call.
const sizeEvery = 1 << 20

// size finds out how large FPDUs may be. The caller holds the send role or has made the connection.
func (c *conn) size() {
	c.tx.mulpdu, c.tx.sized = c.dev.mulpdu(c.s.segment(), c.markOut), c.tx.built
}

// kick sends what is queued, as far as the socket has room. It never waits.
func (c *conn) kick() {
	c.q.mu.Lock()
	if c.tx.busy || c.tx.blocked || c.dead.Load() {
		c.tx.again = true
		c.q.mu.Unlock()
		return
	}
	c.tx.busy = true
	c.q.mu.Unlock()
	if !c.sendSome(inlineBytes) {
		c.handOver()
	}
}

// handOver gives the send role to a goroutine: the holder has other things to do, and others keep adding to the queue.
func (c *conn) handOver() {
	c.q.mu.Lock()
	if !c.dead.Load() {
		c.workers.Go(c.sendAll)
		c.q.mu.Unlock()
		return
	}
	c.q.mu.Unlock()
	c.leave()
}

// sendAll sends until nothing is left or the socket is full, and leaves the send role, which the caller holds.
func (c *conn) sendAll() {
	if c.sendSome(turnBytes) {
		return
	}
	t := turnPool.Get().(*turn) // the connection has none: when sendSome returns true, another goroutine may be in here
	for done := false; !done; done = c.sendSome(turnBytes) {
		t.spend(turnBytes, &c.dev.yielder)
	}
	t.end()
	turnPool.Put(t)
}

// sendSome is pumpAll, but when it has sent the given number of bytes, or inlineBatches, it reports false, and the role stays the
// caller's.
func (c *conn) sendSome(limit int) bool {
	t := &c.tx
	for batches := inlineBatches; batches > 0 && limit > 0; batches-- {
		if t.batch == nil || t.batch.empty() {
			t.fresh(c.dev.stalls.crowded())
			if t.built-t.sized >= sizeEvery {
				c.size()
			}
			c.build(t.batch)
			t.batch.closePiece()
		}
		if t.batch.empty() {
			if c.leave() {
				return true
			}
			continue
		}
		if c.dead.Load() {
			return c.leave()
		}
		when := c.tapTime()
		n, err := c.s.write(t.batch.unsent())
		c.tap(when, true, t.batch.unsent(), n)
		t.batch.advance(n)
		c.noteSent(n)
		limit -= n
		switch {
		case err == errWouldBlock:
			c.block()
			return true
		case err != nil:
			c.broken(err)
			return c.leave()
		}
	}
	return false
}

// fresh has an empty batch to be filled.
func (t *sender) fresh(small bool) {
	if t.batch != nil && t.batch.small == small {
		t.batch.reset()
		return
	}
	if t.batch != nil {
		t.batch.free()
	}
	t.batch = newBatch(small)
}

// leave gives up the send role; it reports false, and the role stays the caller's, if something was queued meanwhile.
func (c *conn) leave() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	if t.again && !c.dead.Load() {
		t.again = false
		return false
	}
	if t.batch != nil && t.batch.empty() {
		t.batch.free()
		t.batch = nil
	}
	t.busy = false
	t.idle.Broadcast()
	return true
}

// block gives up the send role because the socket is full, and has a goroutine wait for room. What is in the batch stays in
// memory until then, if the NIC has that much left.
func (c *conn) block() {
	t := &c.tx
	if t.batch.since.IsZero() {
		t.batch.since = time.Now()
	}
	size, since := t.batch.memory(), t.batch.since
	over := c.dev.stalls.reserve(size, since)
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t.busy = false
	t.idle.Broadcast()
	switch {
	case over > 0:
		c.sever(over, since)
		return
	case c.dead.Load():
		c.dev.stalls.give(size)
		return
	}
	t.blocked = true
	c.dev.stalls.enter(&t.stall, size, since)
	if !t.waiter {
		t.waiter = true
		c.workers.Go(c.waitRoom)
	}
}

// waitRoom goes on sending when the socket has room, until it no longer fills up.
func (c *conn) waitRoom() {
	t := &c.tx
	err := c.s.waitWritable(func() bool {
		c.q.mu.Lock()
		if c.dead.Load() {
			c.q.mu.Unlock()
			return true
		}
		t.blocked, t.busy, t.again = false, true, false
		c.dev.stalls.leave(&t.stall)
		c.q.mu.Unlock()
		c.sendAll()
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		// If the socket has been filled again, by us or by somebody else since, the wait is ours.
		t.waiter = t.blocked && !c.dead.Load()
		return !t.waiter
	})
	if err != nil {
		c.broken(err)
	}
}

// noteSent notes that n more bytes are in the socket: requests that are sent entirely, and need no answer, are complete.
func (c *conn) noteSent(n int) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.tx.sentTo += uint64(n)
	c.noteSentLocked()
}

func (c *conn) noteSentLocked() {
	sq := &c.q.sq
	for sq.sentTo < sq.next {
		e := sq.at(sq.sentTo)
		if e.end > c.tx.sentTo {
			break
		}
		e.sent = true
		sq.sentTo++
	}
	c.q.retire()
}

// cut lets go of the memory of what has not been sent and returns what must still be sent so that the stream ends behind a
// whole FPDU.
func (t *sender) cut(s *stalls) (tail []byte) {
	s.leave(&t.stall)
	if t.batch == nil {
		return nil
	}
	tail = t.batch.rest()
	t.batch.free()
	t.batch = nil
	return tail
}

// refersTo reports whether the batch refers to memory of r, or of a window of it.
func (t *sender) refersTo(r *region) bool {
	if t.batch == nil {
		return false
	}
	for _, ref := range t.batch.refs {
		if ref == r || ref.parent == r {
			return true
		}
	}
	return false
}
