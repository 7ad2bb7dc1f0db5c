// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// recvSend places a segment of a Send message. The last segment completes the receive (RFC 5040
// section 5.3).
func (c *conn) recvSend(h ddp.Untagged, op rdmap.Opcode, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if !r.open {
		if h.MO != 0 {
			return faultMO, false
		}
		if !q.rq.take(&r.recv) {
			return faultNoBuffer, false
		}
		r.open, r.got, r.status = true, 0, verbs.WCSuccess
	}
	if uint64(h.MO) != r.got {
		return faultMO, false
	}
	if r.got+uint64(len(payload)) > r.recv.total {
		r.status, r.why = verbs.WCLocLenErr,
			&verbs.LimitError{Name: "bytes of the receive", Limit: r.recv.total, Value: r.got + uint64(len(payload))}
		return faultTooLong, false
	}
	if why := c.scatter(payload); why != nil {
		r.status, r.why, r.access = verbs.WCLocProtErr, why, why
		return faultPlace, false
	}
	r.got += uint64(len(payload))
	if !h.Last {
		return fault{}, true
	}
	wc := verbs.WC{ID: r.recv.id, Opcode: verbs.WCRecv, ByteLen: uint32(r.got), QPNum: q.num}
	if op == rdmap.OpSendInv || op == rdmap.OpSendSEInv {
		if f, ok := c.invalidate(h.InvSTag); !ok {
			return f, false
		}
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, h.InvSTag
	}
	r.no[ddp.QNSend]++
	r.open, r.wrote, r.writing = false, false, false
	q.recvCQ.push(&wc, op == rdmap.OpSendSE || op == rdmap.OpSendSEInv)
	return fault{}, true
}

// invalidate invalidates the key that a Send with Invalidate names.
func (c *conn) invalidate(stag uint32) (fault, bool) {
	why := c.dev.invalidate(c.q, stag)
	if why == accepted {
		return fault{}, true
	}
	c.rx.access = invalidateError(why, stag)
	if why == rejectSTag {
		return faultInvalOp, false
	}
	return faultInvalKey, false
}

// scatter places payload into the buffers of the receive, starting at offset got. It returns an
// error if an element's access is refused.
func (c *conn) scatter(payload []byte) *verbs.AccessError {
	r := &c.rx
	off := r.got
	for i, s := range r.recv.sgl {
		if len(payload) == 0 {
			break
		}
		if off >= uint64(s.Length) {
			off -= uint64(s.Length)
			continue
		}
		n := int(min(uint64(len(payload)), uint64(s.Length)-off))
		reg, mem, why := c.q.localIn(c.q.rq.pd, s.LKey, s.Addr+off, n, verbs.AccessLocalWrite)
		if why == accepted {
			why = reg.place(mem, payload[:n])
		}
		if why != accepted {
			return elementError(why, i, s, verbs.AccessLocalWrite)
		}
		payload, off = payload[n:], 0
	}
	return nil
}

// immediateData completes a receive with 8 bytes of Immediate Data (RFC 7306 section 6).
func (c *conn) immediateData(h ddp.Untagged, payload []byte) (fault, bool) {
	r, q := &c.rx, c.q
	if r.open {
		// A Send message with this message number has begun.
		return faultMO, false
	}
	if !q.rq.take(&r.recv) {
		return faultNoBuffer, false
	}
	v := rdmap.ParseImmediate(payload)
	wc := verbs.WC{ID: r.recv.id, Opcode: verbs.WCRecvImmData, Flags: verbs.WCWithImm, ByteLen: rdmap.ImmediateLen,
		Imm: uint32(v >> 32), Imm64: v, QPNum: q.num}
	if r.wrote {
		wc.Opcode, wc.ByteLen = verbs.WCRecvRDMAWithImm, uint32(r.written)
	}
	r.wrote, r.writing = false, false
	_, op := rdmap.ParseControl(h.ULP)
	q.recvCQ.push(&wc, op == rdmap.OpImmediateSE)
	return fault{}, true
}
