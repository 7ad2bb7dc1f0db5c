// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// blame is the reason why a request has failed. It is noted where the fault is found, which is at
// most once for each end of a connection and each of its queues, and kept until the QP is reset.
type blame struct {
	id     uint64
	status verbs.WCStatus
	opcode verbs.WCOpcode
	reason error
}

// maxBlamed bounds what is kept: one request can fail in each queue when the connection ends, and
// any number of inline requests that are posted later.
const maxBlamed = 16

// blame notes the reason for the failure of a request, unless one has been noted. The caller holds
// q.mu.
func (q *qp) blame(id uint64, status verbs.WCStatus, opcode verbs.WCOpcode, reason error) {
	if status == verbs.WCWRFlushErr || len(q.blamed) == maxBlamed || q.blamedFor(id, status) != nil {
		return
	}
	q.blamed = append(q.blamed, blame{id, status, opcode, reason})
}

// blamedFor returns what was noted of a request, nil if nothing. The caller holds q.mu.
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

// fault returns what the reason is for users.
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

// access returns the refused access that a fault is about, the reverse of reject.request and
// reject.tagged. It reports false if it is about something else.
func (f fault) access() (verbs.AccessFault, bool) {
	for _, r := range []reject{rejectSTag, rejectBounds, rejectRights, rejectAssociation, rejectWrap} {
		if f == r.request() || f == r.tagged() {
			return r.fault(), true
		}
	}
	return verbs.AccessNoInvalidate, f == faultInvalKey
}

// elementError is the refusal of an element of a request.
func elementError(r reject, i int, s verbs.SGE, right verbs.AccessFlags) *verbs.AccessError {
	e := &verbs.AccessError{Fault: r.fault(), Key: s.LKey, Addr: s.Addr, Length: uint64(s.Length), Element: i}
	if r == rejectRights {
		e.Right = right
	}
	return e
}

// denied notes the access to our memory that a message of the peer asked for and does not get, for
// the Terminate that follows. The caller holds the receive role. It returns the reason.
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

// invalidateError is the refusal to invalidate a key.
func invalidateError(r reject, stag uint32) *verbs.AccessError {
	e := &verbs.AccessError{Fault: verbs.AccessNoInvalidate, Key: stag, Element: -1}
	if r == rejectSTag {
		e.Fault = verbs.AccessBadKey
	}
	return e
}

// accessOf returns the access that a peer's Terminate is about, as far as it is known from what the
// message quotes and from the request that it is about, which may be nil. It returns nil if the
// Terminate is about something else.
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
		return nil // nothing is known but the code
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
