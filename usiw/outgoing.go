// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// responseBurst is how many responses are sent in a row while a request is waiting.
const responseBurst = 16

// build fills a batch with the next segments.
func (c *conn) build(b *batch) {
	for more := true; more && b.room(c.q.cap.MaxSendSGE) && (c.tx.task != taskNone || c.begin(b)); {
		switch {
		case c.tx.task == taskResponse && c.tx.resp.atomic:
			c.atomicResponse(b)
		case c.tx.task == taskResponse:
			more = c.readResponse(b)
		case c.tx.task == taskImm:
			more = c.immediate(b)
		case c.tx.task == taskNudge:
			c.sendNudge(b)
		default:
			more = c.request(b)
		}
	}
}

// begin selects the next message to send: a response before a request, but at most responseBurst in
// a row. It reports false if there is none.
func (c *conn) begin(b *batch) bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	switch {
	case c.dead.Load():
		return false
	case t.last != nil && t.responses.Len() == 0:
		if b.size == 0 { // the batch is sent first
			c.failLocked(t.last.err(), t.last)
		}
		return false
	case t.hold:
		return false
	case t.nudge:
		t.nudge, t.task = false, taskNudge
		return true
	}
	if t.responses.Len() > 0 && (t.burst < responseBurst || t.last != nil) {
		t.burst++
		return c.beginResponse(b)
	}
	t.burst = 0
	if c.beginRequest() {
		return true
	}
	return t.responses.Len() > 0 && !c.dead.Load() && c.beginResponse(b)
}

func (c *conn) beginResponse(b *batch) bool {
	op := rdmap.OpReadResponse
	if c.tx.responses.At(0).atomic {
		op = rdmap.OpAtomicResponse
	}
	if err := c.buildable(op); err != nil {
		if b.size == 0 { // the batch is sent first
			t := &termination{fault: faultLocal}
			c.failLocked(fmt.Errorf("%v: %w: %w", op, err, t.err()), t)
		}
		return false
	}
	c.tx.task, c.tx.resp, c.tx.off = taskResponse, *c.tx.responses.At(0), 0
	return true
}

// buildable returns the test hook's error if it says that the next message cannot be built. It then
// returns the same error on every later call.
func (c *conn) buildable(op rdmap.Opcode) error {
	if c.dev.cfg.Hooks.Build != nil && c.tx.broken == nil {
		c.tx.broken = c.dev.cfg.Hooks.Build(op)
	}
	return c.tx.broken
}

// endResponse removes the response just built from the queue.
func (c *conn) endResponse() {
	c.q.mu.Lock()
	c.tx.responses.Pop()
	c.q.mu.Unlock()
	c.tx.task = taskNone
}

// beginRequest starts the next request if it may begin; otherwise it reports false. The caller
// holds q.mu and the send role, and no message is under construction.
func (c *conn) beginRequest() bool {
	t, sq := &c.tx, &c.q.sq
	c.performLocals()
	if sq.next == sq.tail {
		return false
	}
	e := sq.at(sq.next)
	if e.isLocal() || !c.mayBegin(e) {
		return false
	}
	at := sq.next
	sq.next++
	e.end = math.MaxUint64
	switch {
	case e.awaitsAnswer():
		t.outstanding++
		if e.isAtomic() {
			t.atomics.Push(at)
		} else {
			t.reads.Push(at)
		}
		t.sendNo[1]++
		e.msn = t.sendNo[1]
	case !e.isWrite():
		t.sendNo[0]++
		e.msn = t.sendNo[0]
	}
	t.task, t.entry, t.off = taskRequest, e, 0
	if e.op == verbs.WRImmData {
		t.task = taskImm
	}
	t.inRequest = true
	return true
}

// performLocals performs the local requests that come next in the queue. They keep the queue's
// order but need neither the send role nor room in the socket, so a peer that reads slowly does not
// delay them. A local request that follows a request under construction waits until that message is
// finished. The caller holds q.mu.
func (c *conn) performLocals() {
	t, sq := &c.tx, &c.q.sq
	performed := false
	for !t.inRequest && !t.hold && t.last == nil && !c.dead.Load() && sq.next < sq.tail {
		e := sq.at(sq.next)
		if !e.isLocal() || !c.mayBegin(e) {
			break
		}
		e.end = 0 // complete as soon as the requests before it are
		sq.next++
		performed = true
	}
	if performed {
		c.noteSentLocked()
	}
}

// mayBegin reports whether the next request in the queue may begin, and performs it if it is local.
// A request that fails ends the connection, but the requests before it complete first: the
// goroutine that completes the last of them calls mayBegin again. The caller holds q.mu.
func (c *conn) mayBegin(e *sendEntry) bool {
	t, sq := &c.tx, &c.q.sq
	if e.flags&verbs.SendFence != 0 && t.outstanding > 0 {
		return false
	}
	if e.awaitsAnswer() && t.outstanding >= c.ord && c.ord > 0 {
		return false
	}
	if e.status == verbs.WCSuccess {
		var why error
		if e.status, why = c.verify(e); why != nil {
			c.q.unfit, c.q.unfitAt = why, sq.next
		}
	}
	if e.status != verbs.WCSuccess {
		if sq.head == sq.next {
			c.failRequest(e, e.status, c.q.unfit)
		}
		return false
	}
	return true
}

// verify checks a request that is next to be sent, and performs it if it is local.
func (c *conn) verify(e *sendEntry) (verbs.WCStatus, error) {
	if !e.isLocal() {
		if err := c.buildable(e.rdmapOpcode()); err != nil {
			return verbs.WCLocQPOpErr, err
		}
	}
	switch {
	case e.op == verbs.WRBindMW:
		if err := e.bind.bind(c.q); err != nil {
			return verbs.WCMWBindErr, err
		}
	case e.op == verbs.WRLocalInv:
		if why := c.dev.invalidate(c.q, e.invalidate); why != accepted {
			return verbs.WCMWBindErr, invalidateError(why, e.invalidate)
		}
	case e.awaitsAnswer() && c.ord == 0:
		return verbs.WCLocQPOpErr,
			&verbs.LimitError{Name: "Reads and atomics in progress, to which the peer has agreed (ORD)", Limit: 0,
				Value: 1}
	case e.flags&verbs.SendInline == 0:
		need := verbs.AccessFlags(0)
		if e.awaitsAnswer() {
			need = verbs.AccessLocalWrite
		}
		for i, s := range e.sgl {
			if s.Length == 0 {
				continue
			}
			r, _, why := c.q.local(s.LKey, s.Addr, int(s.Length), need)
			if why != accepted {
				return verbs.WCLocProtErr, elementError(why, i, s, need)
			}
			r.exit()
		}
	}
	return verbs.WCSuccess, nil
}

// requestBuilt finishes a message: the request is sent once the socket has accepted the stream up
// to here.
func (c *conn) requestBuilt(e *sendEntry) {
	c.q.mu.Lock()
	e.end, c.tx.inRequest = c.tx.built, false
	c.q.mu.Unlock()
	c.tx.task, c.tx.entry = taskNone, nil
}

// sealed completes an FPDU in a batch and adds its length to built.
func (c *conn) sealed(b *batch) {
	before := b.whole()
	b.end(c.crc && !c.markOut)
	if c.markOut {
		b.mark(c.tx.built, c.crc)
	}
	c.tx.built += uint64(b.size - before)
}

// span returns how many payload bytes the next segment carries after n bytes of headers; left is
// how many remain in the message. The payload of a large segment is a multiple of the page size, so
// that page-aligned data stay aligned. The payload of every segment but the last is a multiple of
// 8, so that no word of the program's data is read in two parts. copied is set if the payload is
// copied; a small batch has little room for that.
func (c *conn) span(b *batch, left uint32, n int, copied bool) int {
	most := c.tx.mulpdu
	if b.small && copied {
		most = min(most, smallULPDU)
	}
	most -= n
	switch {
	case int64(left) <= int64(most):
		return int(left)
	case most > 16<<10:
		return most &^ (4<<10 - 1)
	}
	return most &^ (8 - 1)
}
