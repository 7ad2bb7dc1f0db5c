// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// blame records why a request failed. It is recorded where the error is detected, at most once per
// connection end and queue, and kept until the QP is reset.
type blame struct {
	id     uint64
	status verbs.WCStatus
	opcode verbs.WCOpcode
	reason error
}

// maxBlamed bounds the records: one request can fail in each queue when the connection ends, and
// any number of inline requests posted later.
const maxBlamed = 16

// blame records why a request failed, unless a reason is already recorded. The caller holds q.mu.
func (q *qp) blame(id uint64, status verbs.WCStatus, opcode verbs.WCOpcode, reason error) {
	if status == verbs.WCWRFlushErr || len(q.blamed) == maxBlamed || q.blamedFor(id, status) != nil {
		return
	}
	q.blamed = append(q.blamed, blame{id, status, opcode, reason})
}

// blamedFor returns the record for a request, or nil. The caller holds q.mu.
func (q *qp) blamedFor(id uint64, status verbs.WCStatus) *blame {
	for i := range q.blamed {
		if b := &q.blamed[i]; b.id == id && b.status == status {
			return b
		}
	}
	return nil
}

// Explain implements verbs.ProviderQPExplainer.
func (q *qp) Explain(wc *verbs.WC) (verbs.WCOpcode, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.blamedFor(wc.ID, wc.Status); b != nil {
		return b.opcode, true, b.reason
	}
	return 0, false, nil
}

// fault returns the reason in the terms of package verbs.
func (r reject) fault() verbs.AccessFault {
	switch r {
	case rejectBounds:
		return verbs.AccessBounds
	case rejectRights:
		return verbs.AccessMissingRight
	case rejectAssociation:
		return verbs.AccessForeign
	case rejectWrap:
		return verbs.AccessWraps
	case rejectWindow:
		return verbs.AccessOfWindow
	}
	return verbs.AccessBadKey
}

// access returns the kind of refused access that a fault reports; it reverses reject.request and
// reject.tagged. It reports false if the fault is not about an access.
func (f fault) access() (verbs.AccessFault, bool) {
	for _, r := range []reject{rejectSTag, rejectBounds, rejectRights, rejectAssociation, rejectWrap} {
		if f == r.request() || f == r.tagged() {
			return r.fault(), true
		}
	}
	return verbs.AccessNoInvalidate, f == faultInvalKey
}

// elementError returns the error for a refused scatter/gather element of a request.
func elementError(r reject, i int, s verbs.SGE, right verbs.AccessFlags) *verbs.AccessError {
	e := &verbs.AccessError{Fault: r.fault(), Key: s.LKey, Addr: s.Addr, Length: uint64(s.Length), Element: i}
	if r == rejectRights {
		e.Right = right
	}
	return e
}

// denied records the refused access to local memory that a message from the peer asked for, for the
// Terminate that follows. It returns the reason. The caller holds the receive role.
func (c *conn) denied(r reject, stag uint32, to, n uint64, right verbs.AccessFlags) reject {
	e := &verbs.AccessError{Fault: r.fault(), Key: stag, Addr: to, Length: n, Element: -1}
	if r == rejectRights {
		e.Right = right
		if c.q.remoteAccess()&right == 0 {
			e.Fault = verbs.AccessQPRight
		}
	}
	c.rx.access = e
	return r
}

// invalidateError returns the error for a key that cannot be invalidated.
func invalidateError(r reject, stag uint32) *verbs.AccessError {
	e := &verbs.AccessError{Fault: verbs.AccessNoInvalidate, Key: stag, Element: -1}
	if r == rejectSTag {
		e.Fault = verbs.AccessBadKey
	}
	return e
}

// accessOf returns the access that a peer's Terminate reports, as far as the quoted headers and the
// offending request, which may be nil, identify it. It returns nil if the Terminate is not about an
// access.
func accessOf(t *rdmap.Terminate, request *sendEntry) *verbs.AccessError {
	f := fault{t.Layer, t.Type, t.Code}
	if f == faultStream && request != nil && request.isAtomic() { // RFC 7306 section 8.2
		return &verbs.AccessError{Fault: verbs.AccessMisaligned, Key: request.rkey, Addr: request.raddr, Length: 8,
			Element: -1}
	}
	denied, ok := f.access()
	if !ok {
		return nil
	}
	e := &verbs.AccessError{Fault: denied, Element: -1}
	var op rdmap.Opcode
	switch {
	case len(t.DDPHeader) == 0:
	case ddp.IsTagged(t.DDPHeader[0]):
		h, err := ddp.ParseTagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		_, op = rdmap.ParseControl(h.ULP)
		e.Key, e.Addr = h.STag, h.TO
		if t.SegLenValid && t.SegLen > ddp.TaggedLen {
			e.Length = uint64(t.SegLen - ddp.TaggedLen)
		}
	default:
		h, err := ddp.ParseUntagged(t.DDPHeader)
		if err != nil {
			return nil
		}
		_, op = rdmap.ParseControl(h.ULP)
		if rr, err := rdmap.ParseReadRequest(t.RDMAPHeader); err == nil {
			e.Key, e.Addr, e.Length = rr.SrcSTag, rr.SrcTO, uint64(rr.Size)
		} else if e.Fault == verbs.AccessNoInvalidate {
			e.Key = h.InvSTag
		}
	}
	if e.Key == 0 && request != nil && (request.awaitsAnswer() || request.isWrite()) {
		e.Key, e.Addr, e.Length = request.rkey, request.raddr, uint64(request.length)
		op = request.rdmapOpcode()
	}
	if e.Key == 0 {
		return nil // only the code is known
	}
	if e.Fault == verbs.AccessMissingRight {
		switch op {
		case rdmap.OpWrite:
			e.Right = verbs.AccessRemoteWrite
		case rdmap.OpReadRequest:
			e.Right = verbs.AccessRemoteRead
		case rdmap.OpAtomicRequest:
			e.Right = verbs.AccessRemoteAtomic
		}
	}
	return e
}
