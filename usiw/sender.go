// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/queue"
)

// inlineBatches and inlineBytes limit how much a poster or a holder of the receive role sends in a
// row before it leaves the rest to another goroutine. That goroutine, and the one that waits for
// room, yield after each turn (turn.go).
const (
	inlineBatches = 16
	inlineBytes   = 2 << 20
)

// task identifies the message that the send role is building.
type task uint8

const (
	taskNone     task = iota
	taskRequest       // the message of entry, from offset off
	taskImm           // the Immediate Data of entry
	taskResponse      // resp, from offset off
	taskNudge         // see nudge.go
)

// sender is the send side of a connection. The send role (busy) is taken under q.mu. Its holder
// never waits: if the socket is full, it leaves the rest in the batch, and one goroutine per
// connection waits for room.
type sender struct {
	busy    bool      // mu: a goroutine holds the role
	again   bool      // mu: more was queued while the role was taken
	blocked bool      // mu: the socket is full
	waiter  bool      // mu: a goroutine is in waitRoom
	hold    bool      // mu: the peer must send first; see hold.go
	idle    sync.Cond // on q.mu: signalled when busy becomes false

	holdTimer  *time.Timer  // mu: ends hold after HoldTimeout; nil if peer-to-peer
	nudge      bool         // mu: a nudge is due
	nudgeTimer *time.Timer  // mu: for the next nudge; nil if the peer needs none
	last       *termination // mu: the Terminate that ends the connection, sent after the queued responses
	grace      *time.Timer  // mu: limits the time for these responses

	stall   stall // mu: the batch, while it is blocked
	severed bool  // mu: the batch was dropped; the stream ends in the middle of an FPDU

	responses   queue.Ring[response] // mu
	inRequest   bool                 // mu: a request's message is under construction
	outstanding int                  // mu: unanswered Reads and atomics
	reads       queue.Ring[uint64]   // mu: positions of the unanswered Reads in the send queue
	atomics     queue.Ring[uint64]   // mu: positions of the unanswered atomics in the send queue
	sentTo      uint64               // mu: bytes of the stream that the socket has accepted

	// The fields below belong to the holder of the send role.
	batch  *batch
	task   task
	entry  *sendEntry
	resp   response
	off    uint32
	burst  int
	broken error     // the test hook's error
	built  uint64    // bytes of the stream that have been put into batches
	mulpdu int       // largest ULPDU in bytes
	sized  uint64    // built when mulpdu was last set
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

// mulpdu returns the largest ULPDU for a stream with the given segment size; 0 means that the size
// is unknown.
func (d *device) mulpdu(segment int, markers bool) int {
	if segment <= 0 || segment > d.cfg.MTU {
		segment = d.cfg.MTU
	}
	return mpa.MULPDU(segment, markers)
}

// sizeEvery is the number of bytes after which size is called again: the path to the peer, and with
// it the segment size, may change (RFC 5044 section 4.5). Each call costs a system call.
const sizeEvery = 1 << 20

// size updates the largest ULPDU. The caller holds the send role, or has just created the
// connection.
func (c *conn) size() {
	c.tx.mulpdu, c.tx.sized = c.dev.mulpdu(c.s.segment(), c.markOut), c.tx.built
}

// kick performs local requests and sends queued messages until the socket is full. It never waits.
func (c *conn) kick() {
	c.q.mu.Lock()
	c.performLocals()
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

// handOver passes the send role to another goroutine of the connection, because the caller has
// other work and requests keep arriving.
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

// sendAll sends until nothing is left or the socket is full, and gives up the send role. The caller
// holds the role.
func (c *conn) sendAll() {
	if c.sendSome(turnBytes) {
		return
	}
	// From a pool, not a field of the connection: once sendSome returns true, another goroutine may
	// run sendAll.
	t := turnPool.Get().(*turn)
	for done := false; !done; done = c.sendSome(turnBytes) {
		t.spend(turnBytes, &c.dev.yielder)
	}
	t.end()
	turnPool.Put(t)
}

// sendSome is like sendAll with a limit: after the given number of bytes, or inlineBatches, it
// returns false, and the caller keeps the role.
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
			c.unsent(err)
			return c.leave()
		}
	}
	return false
}

// fresh replaces batch with an empty one of the given kind.
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

// leave gives up the send role. If more was queued meanwhile, it returns false, and the caller
// keeps the role.
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

// block gives up the send role because the socket is full, and starts a goroutine that waits for
// room. The batch stays in memory until then if the stall account has room for it; otherwise block
// ends the connection.
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

// waitRoom waits for room and continues sending, and repeats this until the socket has accepted
// everything.
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
		// If the socket is full again, whether this goroutine or another one filled it, keep
		// waiting.
		t.waiter = t.blocked && !c.dead.Load()
		return !t.waiter
	})
	if err != nil {
		c.broken(err)
	}
}

// noteSent records that the socket accepted n more bytes. Requests that are fully sent and need no
// answer are complete, and a local request after them is performed.
func (c *conn) noteSent(n int) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.tx.sentTo += uint64(n)
	c.noteSentLocked()
	c.performLocals()
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

// cut releases the memory of the unsent data. It returns the bytes still needed for the stream to
// end after a whole FPDU.
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

// refersTo reports whether the batch refers to memory of r, or of a window bound to r.
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
