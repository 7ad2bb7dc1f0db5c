// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// offendingRequest returns the request that a peer's Terminate is about, or nil if the Terminate
// does not identify it. The caller holds q.mu.
func (c *conn) offendingRequest(t *rdmap.Terminate) *sendEntry {
	switch {
	case len(t.DDPHeader) == 0 &&
		(t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeOperation && t.Code >= rdmap.OperVersion ||
			isSIWOpcode(t)):
		// Kernel siw quotes no header for an operation that it does not know. The offending request
		// is the oldest one without an answer.
		return c.begun(func(e *sendEntry) bool { return e.awaitsAnswer() && !e.answered })
	case len(t.DDPHeader) == 0:
		return nil
	case ddp.IsTagged(t.DDPHeader[0]):
		h, err := ddp.ParseTagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		return c.begun(func(e *sendEntry) bool {
			return e.isWrite() && e.rkey == h.STag && h.TO >= e.raddr && h.TO-e.raddr <= uint64(e.length)
		})
	}
	h, err := ddp.ParseUntagged(t.DDPHeader)
	if err != nil {
		return nil
	}
	numbered := func(e *sendEntry) bool {
		return e.msn == h.MSN && (h.QN == ddp.QNReadRequest && e.awaitsAnswer() ||
			h.QN == ddp.QNSend && !e.awaitsAnswer() && !e.isLocal() && e.op != verbs.WRRDMAWrite)
	}
	rr, err := rdmap.ParseReadRequest(t.RDMAPHeader)
	if err != nil {
		return c.begun(numbered)
	}
	if e := c.begun(func(e *sendEntry) bool { return numbered(e) && e.asked(&rr) }); e != nil || h.MSN != rr.Size {
		return e
	}
	// Kernel siw quotes the length in place of the message number, but the Read Request that it
	// quotes is correct.
	return c.begun(func(e *sendEntry) bool { return e.asked(&rr) })
}

// isSIWOpcode reports whether t is the Terminate that kernel siw sends for an unknown operation. In
// RFC 6581 section 8 its code means a failed set-up, which is impossible once there are requests.
func isSIWOpcode(t *rdmap.Terminate) bool {
	return t.Layer == rdmap.LayerMPA && t.Type == 0 && t.Code == mpa.ErrCodeIRD && len(t.DDPHeader) == 0
}

// begun returns the oldest request that satisfies is, among those that have been started and not
// completed.
func (c *conn) begun(is func(e *sendEntry) bool) *sendEntry {
	for i := c.q.sq.head; i < c.q.sq.next; i++ {
		if e := c.q.sq.at(i); is(e) {
			return e
		}
	}
	return nil
}

// asked reports whether rr is the Read Request of e, or what remains of it after part was answered.
func (e *sendEntry) asked(rr *rdmap.ReadRequest) bool {
	if e.op != verbs.WRRDMARead || e.rkey != rr.SrcSTag || rr.Size > e.length {
		return false
	}
	answered := uint64(e.length - rr.Size)
	if rr.SrcTO != e.raddr+answered {
		return false
	}
	return len(e.sgl) == 0 || e.sgl[0].LKey == rr.SinkSTag && e.sgl[0].Addr+answered == rr.SinkTO
}
