// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// segment handles a DDP segment. It returns the fault and false if it refuses the segment; nothing
// has been placed then. The CRC of the FPDU has already been checked, so damaged data are never
// placed.
func (c *conn) segment(b []byte) (fault, bool) {
	if ddp.IsTagged(b[0]) {
		return c.tagged(b)
	}
	return c.untagged(b)
}

// tagged handles RDMA Write and RDMA Read Response (RFC 5041 section 7.2).
func (c *conn) tagged(b []byte) (fault, bool) {
	if ddp.VersionOf(b[0]) != ddp.Version {
		return faultTaggedVersion, false
	}
	h, err := ddp.ParseTagged(b)
	if err != nil {
		return faultSize, false
	}
	version, op := rdmap.ParseControl(h.ULP)
	if version != rdmap.Version {
		return faultVersion, false
	}
	payload := b[ddp.TaggedLen:]
	switch op {
	case rdmap.OpWrite:
		return c.recvWrite(h, payload)
	case rdmap.OpReadResponse:
		return c.readAnswer(h, payload)
	}
	return faultOpcode, false
}

// untagged handles all other messages. It checks, in this order, the DDP version, queue and
// sequence number; the RDMAP version, the opcode and whether it belongs to the queue; offset and
// length; and then what the operation requires.
func (c *conn) untagged(b []byte) (fault, bool) {
	if ddp.VersionOf(b[0]) != ddp.Version {
		return faultDDPVersion, false
	}
	h, err := ddp.ParseUntagged(b)
	if err != nil {
		return faultSize, false
	}
	if h.QN > ddp.QNAtomicResponse {
		return faultQN, false
	}
	if h.MSN != c.rx.no[h.QN] {
		return faultMSN, false
	}
	version, op := rdmap.ParseControl(h.ULP)
	if version != rdmap.Version {
		return faultVersion, false
	}
	payload := b[ddp.UntaggedLen:]
	var handle func(*conn, ddp.Untagged, []byte) (fault, bool)
	queue, length := uint32(ddp.QNSend), 0
	switch op {
	case rdmap.OpSend, rdmap.OpSendSE, rdmap.OpSendInv, rdmap.OpSendSEInv:
		if h.QN != queue || !c.enabled(op) {
			return faultOpcode, false
		}
		return c.recvSend(h, op, payload)
	case rdmap.OpTerminate:
		switch {
		case h.QN != ddp.QNTerminate:
			return faultOpcode, false
		case h.MO != 0 || !h.Last: // a single segment (RFC 5040 section 4.8)
			return faultMO, false
		}
		c.terminated(payload)
		return fault{}, true
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		handle, length = (*conn).immediateData, rdmap.ImmediateLen
	case rdmap.OpReadRequest:
		handle, queue, length = (*conn).readRequest, ddp.QNReadRequest, rdmap.ReadRequestLen
	case rdmap.OpAtomicRequest:
		handle, queue, length = (*conn).atomicRequest, ddp.QNReadRequest, rdmap.AtomicRequestLen
	case rdmap.OpAtomicResponse:
		handle, queue, length = (*conn).atomicAnswer, ddp.QNAtomicResponse, rdmap.AtomicResponseLen
	default:
		return faultOpcode, false
	}
	switch {
	case h.QN != queue || !c.enabled(op):
		return faultOpcode, false
	case h.MO != 0 || !h.Last:
		return faultMO, false
	case len(payload) > length:
		return faultTooLong, false
	case len(payload) < length:
		return faultStream, false
	}
	if f, ok := handle(c, h, payload); !ok {
		return f, false
	}
	c.rx.no[h.QN]++
	return fault{}, true
}

// enabled reports whether messages of this kind are accepted at all.
func (c *conn) enabled(op rdmap.Opcode) bool {
	ops := c.dev.ops
	switch op {
	case rdmap.OpSendInv, rdmap.OpSendSEInv:
		return ops.Has(verbs.OpSendInv)
	case rdmap.OpImmediate, rdmap.OpImmediateSE:
		return ops.Has(verbs.OpImm64)
	case rdmap.OpAtomicRequest, rdmap.OpAtomicResponse:
		return ops.Has(verbs.OpFetchAdd)
	}
	return true
}
