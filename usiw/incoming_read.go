// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// readAnswer places a segment of the response to our oldest Read (RFC 5040 section 5.2.2).
func (c *conn) readAnswer(h ddp.Tagged, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if r.opening {
		if len(payload) > 0 || !h.Last {
			return rejectBounds.tagged(), false
		}
		r.opening, r.reply = false, true
		q.mu.Lock()
		c.tx.outstanding--
		q.mu.Unlock()
		return fault{}, true
	}
	// The entry stays in the queue while we hold the receive role, because only a response
	// completes it.
	e := c.oldest(&c.tx.reads)
	if e == nil {
		return rejectSTag.tagged(), false
	}
	end := uint64(r.readGot) + uint64(len(payload))
	if e.length > 0 {
		sink := e.sgl[0]
		switch {
		case h.STag != sink.LKey:
			return rejectSTag.tagged(), false
		case h.TO != sink.Addr+uint64(r.readGot), end > uint64(e.length), h.Last != (end == uint64(e.length)):
			return rejectBounds.tagged(), false
		}
	} else if len(payload) > 0 || !h.Last {
		return rejectBounds.tagged(), false
	}
	if len(payload) > 0 {
		reg, mem, why := q.local(e.sgl[0].LKey, h.TO, len(payload), verbs.AccessLocalWrite)
		if why == accepted {
			why = reg.place(mem, payload)
		}
		if why != accepted {
			c.lost(e, elementError(why, 0, e.sgl[0], verbs.AccessLocalWrite))
			return why.tagged(), false
		}
	}
	r.readGot = uint32(end)
	if h.Last {
		r.readGot = 0
		c.answered(&c.tx.reads, e)
	}
	return fault{}, true
}

// oldest returns the request at the head of a queue of unanswered requests, or nil if the queue is
// empty.
func (c *conn) oldest(unanswered *queue.Ring[uint64]) *sendEntry {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if unanswered.Len() == 0 {
		return nil
	}
	return c.q.sq.at(*unanswered.At(0))
}

// lost sets the status of a request whose destination memory was deregistered. The caller holds the
// receive role.
func (c *conn) lost(e *sendEntry, why *verbs.AccessError) {
	c.rx.access = why
	c.q.mu.Lock()
	e.status = verbs.WCLocProtErr
	c.q.blame(e.id, e.status, e.op.Completion(), why)
	c.q.mu.Unlock()
}

// answered completes e, the request at the head of a queue of unanswered requests.
func (c *conn) answered(unanswered *queue.Ring[uint64], e *sendEntry) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	unanswered.Pop()
	e.answered = true
	c.tx.outstanding--
	c.q.retire()
	if c.q.sq.next < c.q.sq.tail { // waiting requests may be able to start
		c.rx.reply = true
	}
}

// readRequest queues the response to a Read (RFC 5040 section 5.2.1). Access to the source is
// checked now, and again when the response is built, which copies the data.
func (c *conn) readRequest(h ddp.Untagged, payload []byte) (fault, bool) {
	rr, err := rdmap.ParseReadRequest(payload)
	if err != nil {
		return faultStream, false
	}
	if c.overIRD() {
		return faultNoBuffer, false
	}
	// A Read of length 0 accesses no memory (RFC 5040 section 5.2.1).
	if rr.Size > 0 {
		if c.q.remoteAccess()&verbs.AccessRemoteRead == 0 {
			return c.denied(rejectRights, rr.SrcSTag, rr.SrcTO, uint64(rr.Size), verbs.AccessRemoteRead).request(),
				false
		}
		reg, _, why := c.dev.stags.check(c.q, rr.SrcSTag, rr.SrcTO, int(rr.Size), verbs.AccessRemoteRead)
		if why != accepted {
			return c.denied(why, rr.SrcSTag, rr.SrcTO, uint64(rr.Size), verbs.AccessRemoteRead).request(), false
		}
		reg.exit()
	}
	c.answer(response{msn: h.MSN, read: rr})
	return fault{}, true
}

// overIRD reports whether the peer already has as many Reads and atomics in progress as we allow.
func (c *conn) overIRD() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.tx.responses.Len() >= c.serve
}

// answer queues a response. Requests are answered in order of arrival.
func (c *conn) answer(resp response) {
	c.rx.wrote, c.rx.writing = false, false
	c.q.mu.Lock()
	c.tx.responses.Push(resp)
	c.q.mu.Unlock()
	c.rx.reply = true
}
