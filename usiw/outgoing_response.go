// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// response is an answer for the peer: the data of a Read, or the result of an atomic already
// performed.
type response struct {
	atomic bool
	msn    uint32 // of the request on queue 1
	read   rdmap.ReadRequest
	result rdmap.AtomicResponse
}

// readResponse builds the next segment of the answer to a Read. It always copies the data: while
// they wait to be sent they may change and the key may become invalid, which for our own requests
// the program must prevent. It reports false if the data can no longer be read; see gather.
func (c *conn) readResponse(b *batch) bool {
	rr := &c.tx.resp.read
	n := c.span(b, rr.Size-c.tx.off, ddp.TaggedLen, true)
	last := c.tx.off+uint32(n) == rr.Size
	h := b.begin(ddp.TaggedLen+n, ddp.TaggedLen)
	ddp.Tagged{Last: last, ULP: rdmap.Control(rdmap.OpReadResponse), STag: rr.SinkSTag,
		TO: rr.SinkTO + uint64(c.tx.off)}.Put(h)
	if n > 0 {
		r, mem, why := c.dev.stags.check(c.q, rr.SrcSTag, rr.SrcTO+uint64(c.tx.off), n, verbs.AccessRemoteRead)
		if why == accepted {
			why = b.copy(r, mem, c.crc && !c.markOut)
		}
		if why != accepted {
			b.abandon()
			// The key was valid when the request arrived.
			if b.size == 0 {
				t := c.readTermination(why)
				c.fail(t.err(), t)
			}
			return false
		}
	}
	c.sealed(b)
	c.tx.off += uint32(n)
	if last {
		c.endResponse()
	}
	return true
}

// readTermination returns the Terminate for a Read that cannot be answered further. It quotes the
// Read Request, advanced by the bytes already answered (RFC 5040 section 4.8).
func (c *conn) readTermination(why reject) *termination {
	rr := c.tx.resp.read
	rr.SinkTO += uint64(c.tx.off)
	rr.SrcTO += uint64(c.tx.off)
	rr.Size -= c.tx.off
	t := &termination{fault: why.request(), segLen: ddp.UntaggedLen + rdmap.ReadRequestLen,
		access: &verbs.AccessError{Fault: why.fault(), Key: rr.SrcSTag, Addr: rr.SrcTO, Length: uint64(rr.Size),
			Element: -1},
		ddp: make([]byte, ddp.UntaggedLen), rdmap: make([]byte, rdmap.ReadRequestLen)}
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpReadRequest), QN: ddp.QNReadRequest,
		MSN: c.tx.resp.msn}.Put(t.ddp)
	rr.Put(t.rdmap)
	return t
}

func (c *conn) atomicResponse(b *batch) {
	c.tx.respNo++
	h := b.begin(ddp.UntaggedLen+rdmap.AtomicResponseLen, ddp.UntaggedLen+rdmap.AtomicResponseLen)
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpAtomicResponse), QN: ddp.QNAtomicResponse,
		MSN: c.tx.respNo}.Put(h)
	c.tx.resp.result.Put(h[ddp.UntaggedLen:])
	c.sealed(b)
	c.endResponse()
}
