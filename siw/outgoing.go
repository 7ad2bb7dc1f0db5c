// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"fmt"
	"math"

	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// responseBurst is how many responses go out before a waiting request gets its turn.
const responseBurst = 16

// build fills a batch.
func (c *conn) build(b *batch) {
	for more := true; more && b.room(c.q.cap.MaxSendSGE) && (c.tx.task != taskNone || c.begin(b)); {
		switch {
		case c.tx.task == taskResponse && c.tx.resp.atomic:
			c.atomicResponse(b)
		case c.tx.task == taskResponse:
			more = c.readResponse(b)
		case c.tx.task == taskImm:
			more = c.immediate(b)
		default:
			more = c.request(b)
		}
	}
}

// begin takes the next thing to send: a response before a request, but not for ever. It reports false if there is none.
func (c *conn) begin(b *batch) bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	t := &c.tx
	switch {
	case c.dead.Load():
		return false
	case t.last != nil && t.responses.len() == 0:
		if b.size == 0 { // what is in the batch goes first
			c.failLocked(t.last.err(), t.last)
		}
		return false
	case t.hold:
		return false
	}
	if t.responses.len() > 0 && (t.burst < responseBurst || t.last != nil) {
		t.burst++
		return c.beginResponse(b)
	}
	t.burst = 0
	if c.beginRequest() {
		return true
	}
	return t.responses.len() > 0 && !c.dead.Load() && c.beginResponse(b)
}

func (c *conn) beginResponse(b *batch) bool {
	op := rdmap.OpReadResponse
	if c.tx.responses.front().atomic {
		op = rdmap.OpAtomicResponse
	}
	if err := c.buildable(op); err != nil {
		if b.size == 0 { // what is in the batch goes first
			t := &termination{fault: faultLocal}
			c.failLocked(fmt.Errorf("%v: %w: %w", op, err, t.err()), t)
		}
		return false
	}
	c.tx.task, c.tx.resp, c.tx.off = taskResponse, *c.tx.responses.front(), 0
	return true
}

// buildable asks the test hook whether the next message can be built. What cannot be built stays so.
func (c *conn) buildable(op rdmap.Opcode) error {
	if c.dev.cfg.Hooks.Build != nil && c.tx.broken == nil {
		c.tx.broken = c.dev.cfg.Hooks.Build(op)
	}
	return c.tx.broken
}

// endResponse frees the place of a response that has been built.
func (c *conn) endResponse() {
	c.q.mu.Lock()
	c.tx.responses.pop()
	c.q.mu.Unlock()
	c.tx.task = taskNone
}

// beginRequest takes the next request that may start, doing those that send nothing on the way. The caller holds q.mu.
func (c *conn) beginRequest() bool {
	t, sq := &c.tx, &c.q.sq
	for sq.next < sq.tail {
		e := sq.at(sq.next)
		if e.flags&verbs.SendFence != 0 && t.outstanding > 0 {
			return false
		}
		if e.awaitsAnswer() && t.outstanding >= c.ord && c.ord > 0 {
			return false
		}
		if e.status == verbs.WCSuccess {
			e.status = c.verify(e)
		}
		if e.status != verbs.WCSuccess {
			// The requests before it complete first; whoever completes the last of them comes here again.
			if sq.head == sq.next {
				c.failRequest(e, e.status)
			}
			return false
		}
		at := sq.next
		sq.next++
		if e.isLocal() {
			e.end = t.built
			c.noteSentLocked()
			continue
		}
		e.end = math.MaxUint64
		switch {
		case e.awaitsAnswer():
			t.outstanding++
			if e.isAtomic() {
				t.atomics.push(at)
			} else {
				t.reads.push(at)
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
		return true
	}
	return false
}

// verify judges a request at the time at which its turn has come, and does it if it is local.
func (c *conn) verify(e *sendEntry) verbs.WCStatus {
	if !e.isLocal() && c.buildable(e.rdmapOpcode()) != nil {
		return verbs.WCLocQPOpErr
	}
	switch {
	case e.op == verbs.WRBindMW:
		if !e.bind.bind(c.q) {
			return verbs.WCMWBindErr
		}
	case e.op == verbs.WRLocalInv:
		if c.dev.invalidate(c.q, e.invalidate) != accepted {
			return verbs.WCMWBindErr
		}
	case e.awaitsAnswer() && c.ord == 0:
		return verbs.WCLocQPOpErr
	case e.flags&verbs.SendInline == 0:
		need := verbs.AccessFlags(0)
		if e.awaitsAnswer() {
			need = verbs.AccessLocalWrite
		}
		for _, s := range e.sgl {
			if s.Length == 0 {
				continue
			}
			r, _, why := c.q.local(s.LKey, s.Addr, int(s.Length), need)
			if why != accepted {
				return verbs.WCLocProtErr
			}
			r.exit()
		}
	}
	return verbs.WCSuccess
}

// requestBuilt ends a message: once the socket has the stream up to here, the request is sent.
func (c *conn) requestBuilt(e *sendEntry) {
	c.q.mu.Lock()
	e.end = c.tx.built
	c.q.mu.Unlock()
	c.tx.task, c.tx.entry = taskNone, nil
}

// sealed counts an FPDU that has been put into a batch.
func (c *conn) sealed(b *batch) {
	before := b.whole()
	b.end(c.crc && !c.markOut)
	if c.markOut {
		b.mark(c.tx.built, c.crc)
	}
	c.tx.built += uint64(b.size - before)
}

// span returns how many payload bytes go into the next segment behind n bytes of headers. Large segments are multiples of
// the page size, so that data which begin on one stay on one. What is copied must be short for a small batch.
func (c *conn) span(b *batch, left uint32, n int, copied bool) int {
	most := c.tx.mulpdu
	if b.small && copied {
		most = min(most, smallULPDU)
	}
	most -= n
	if most > 16<<10 {
		most &^= 4<<10 - 1
	}
	return int(min(int64(left), int64(most)))
}
