// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// request builds the next segment of a request. It reports false if it cannot.
func (c *conn) request(b *batch) bool {
	e := c.tx.entry
	switch e.op {
	case verbs.WRRDMARead:
		rr := rdmap.ReadRequest{Size: e.length, SrcSTag: e.rkey, SrcTO: e.raddr}
		if len(e.sgl) > 0 {
			rr.SinkSTag, rr.SinkTO = e.sgl[0].LKey, e.sgl[0].Addr
		}
		h := b.begin(ddp.UntaggedLen+rdmap.ReadRequestLen, ddp.UntaggedLen+rdmap.ReadRequestLen)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpReadRequest), QN: ddp.QNReadRequest, MSN: e.msn}.Put(h)
		rr.Put(h[ddp.UntaggedLen:])
		c.sealed(b)
		c.requestBuilt(e)
	case verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp,
		verbs.WRMaskedAtomicCmpAndSwp:
		ar := rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd, ID: e.msn, STag: e.rkey, TO: e.raddr,
			AddSwap: e.operands.add, AddSwapMask: e.operands.addMask, Compare: e.operands.compare,
			CompareMask: e.operands.compareMask}
		if e.op == verbs.WRAtomicCmpAndSwp || e.op == verbs.WRMaskedAtomicCmpAndSwp {
			ar.Op = rdmap.AtomicCmpSwap
		}
		h := b.begin(ddp.UntaggedLen+rdmap.AtomicRequestLen, ddp.UntaggedLen+rdmap.AtomicRequestLen)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpAtomicRequest), QN: ddp.QNReadRequest, MSN: e.msn}.Put(h)
		ar.Put(h[ddp.UntaggedLen:])
		c.sealed(b)
		c.requestBuilt(e)
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		n := c.span(b, e.length-c.tx.off, ddp.TaggedLen, c.copies(e))
		last := c.tx.off+uint32(n) == e.length
		h := b.begin(ddp.TaggedLen+n, ddp.TaggedLen)
		ddp.Tagged{Last: last, ULP: rdmap.Control(rdmap.OpWrite), STag: e.rkey, TO: e.raddr + uint64(c.tx.off)}.Put(h)
		if !c.gather(b, e, n) {
			return false
		}
		if last && e.op == verbs.WRRDMAWriteWithImm {
			c.tx.task = taskImm
			c.tx.sendNo[0]++
			c.q.mu.Lock()
			e.msn = c.tx.sendNo[0]
			c.q.mu.Unlock()
		} else if last {
			c.requestBuilt(e)
		}
	default:
		n := c.span(b, e.length-c.tx.off, ddp.UntaggedLen, c.copies(e))
		last := c.tx.off+uint32(n) == e.length
		h := b.begin(ddp.UntaggedLen+n, ddp.UntaggedLen)
		hdr := ddp.Untagged{Last: last, ULP: rdmap.Control(e.rdmapOpcode()), QN: ddp.QNSend, MSN: e.msn, MO: c.tx.off}
		if e.op == verbs.WRSendWithInv {
			hdr.InvSTag = e.invalidate
		}
		hdr.Put(h)
		if !c.gather(b, e, n) {
			return false
		}
		if last {
			c.requestBuilt(e)
		}
	}
	return true
}

// rdmapOpcode returns the opcode of the request's message; for a Write with immediate, the opcode
// of the Write.
func (e *sendEntry) rdmapOpcode() rdmap.Opcode {
	solicited := e.flags&verbs.SendSolicited != 0
	switch {
	case e.isWrite():
		return rdmap.OpWrite
	case e.op == verbs.WRRDMARead:
		return rdmap.OpReadRequest
	case e.isAtomic():
		return rdmap.OpAtomicRequest
	case e.op == verbs.WRImmData:
		return e.immediateOpcode()
	case e.op == verbs.WRSendWithInv && solicited:
		return rdmap.OpSendSEInv
	case e.op == verbs.WRSendWithInv:
		return rdmap.OpSendInv
	case solicited:
		return rdmap.OpSendSE
	}
	return rdmap.OpSend
}

// immediateOpcode returns the opcode of the request's Immediate Data.
func (e *sendEntry) immediateOpcode() rdmap.Opcode {
	if e.flags&verbs.SendSolicited != 0 {
		return rdmap.OpImmediateSE
	}
	return rdmap.OpImmediate
}

// copiesAll reports whether the connection copies all payload before sending it. The program may
// change the memory of a request in progress, and the peer may then receive old or new bytes; but
// the bytes that the CRC covers must be the bytes sent.
func (c *conn) copiesAll() bool { return c.crc || c.markOut }

// copies reports whether gather may copy more than copyLimit bytes.
func (c *conn) copies(e *sendEntry) bool { return c.copiesAll() || len(e.sgl) != 1 }

// gather appends the next n bytes of a request's data to the header of the segment, and completes
// the segment. It reports false if a key has become invalid. The connection then ends as soon as
// the batch is empty: the complete FPDUs in the batch are still sent.
func (c *conn) gather(b *batch, e *sendEntry, n int) bool {
	off := uint64(c.tx.off)
	if e.flags&verbs.SendInline != 0 {
		b.inline(e.inline[off : off+uint64(n)])
	} else {
		left := uint64(n)
		for i, s := range e.sgl {
			if left == 0 {
				break
			}
			if off >= uint64(s.Length) {
				off -= uint64(s.Length)
				continue
			}
			k := min(left, uint64(s.Length)-off)
			r, mem, why := c.q.local(s.LKey, s.Addr+off, int(k), 0)
			switch {
			case why != accepted:
			case k <= copyLimit || c.copiesAll():
				why = b.copy(r, mem, c.crc && !c.markOut)
			default:
				b.refer(r, mem)
			}
			if why != accepted {
				b.abandon()
				c.giveUp(b, e, verbs.WCLocProtErr, elementError(why, i, s, 0))
				return false
			}
			off, left = 0, left-k
		}
	}
	c.tx.off += uint32(n)
	c.sealed(b)
	return true
}

// giveUp ends the connection because the rest of a request cannot be sent, but only after the batch
// has been sent and the requests before it have completed. The goroutine that completes the last of
// them calls giveUp again.
func (c *conn) giveUp(b *batch, e *sendEntry, status verbs.WCStatus, reason error) {
	if b.size > 0 {
		return
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.q.sq.oldest() == e {
		c.failRequest(e, status, reason)
	}
}

// immediate builds an Immediate Data message (RFC 7306 section 6.2). It reports false if it cannot.
func (c *conn) immediate(b *batch) bool {
	e := c.tx.entry
	if e.isWrite() {
		if err := c.buildable(e.immediateOpcode()); err != nil {
			c.giveUp(b, e, verbs.WCLocQPOpErr, err)
			return false
		}
	}
	h := b.begin(ddp.UntaggedLen+rdmap.ImmediateLen, ddp.UntaggedLen+rdmap.ImmediateLen)
	ddp.Untagged{Last: true, ULP: rdmap.Control(e.immediateOpcode()), QN: ddp.QNSend, MSN: e.msn}.Put(h)
	rdmap.PutImmediate(h[ddp.UntaggedLen:], e.imm)
	c.sealed(b)
	c.requestBuilt(e)
	return true
}
