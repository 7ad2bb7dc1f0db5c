// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// fault is the error that a Terminate message reports (RFC 5040 section 4.8, RFC 6580 section 3).
type fault struct{ layer, typ, code uint8 }

// Faults other than refused accesses, which type reject maps to faults. Where the RFCs leave a code
// open, it is chosen in one of these two places.
var (
	faultLocal = fault{rdmap.LayerRDMAP, rdmap.ErrTypeLocal, 0} // a message cannot be built (RFC 7306 section 8.1)
	faultPlace = fault{rdmap.LayerDDP, ddp.ErrTypeLocal, 0}     // a message cannot be placed
	faultCRC   = fault{rdmap.LayerMPA, 0, mpa.ErrCodeCRC}       // bad CRC
	// an FPDU too short for its header; the code that kernel siw uses
	faultSize = fault{rdmap.LayerMPA, 0, mpa.ErrCodeMarker}
	// a marker that does not point to the start of its FPDU
	faultMarker = fault{rdmap.LayerMPA, 0, mpa.ErrCodeMarker}
	faultIRD    = fault{rdmap.LayerMPA, 0, mpa.ErrCodeIRD} // set-up: insufficient IRD (RFC 6581 section 8)
	faultRTR    = fault{rdmap.LayerMPA, 0, mpa.ErrCodeRTR} // set-up: no RTR in common

	faultVersion = fault{rdmap.LayerRDMAP, rdmap.ErrTypeOperation, rdmap.OperVersion}
	// also for an opcode that is disabled or on the wrong queue, and for an unknown atomic
	faultOpcode = fault{rdmap.LayerRDMAP, rdmap.ErrTypeOperation, rdmap.OperOpcode}
	// misaligned atomic (RFC 7306 section 8.2), short header, wrong identifier
	faultStream   = fault{rdmap.LayerRDMAP, rdmap.ErrTypeOperation, rdmap.OperStream}
	faultInvalOp  = fault{rdmap.LayerRDMAP, rdmap.ErrTypeOperation, rdmap.OperCannotInvalidate}
	faultInvalKey = fault{rdmap.LayerRDMAP, rdmap.ErrTypeProtection, rdmap.ProtCannotInvalidate}

	faultTaggedVersion = fault{rdmap.LayerDDP, ddp.ErrTypeTagged, ddp.TaggedVersion}
	faultDDPVersion    = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedVersion}
	faultQN            = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedInvalidQN}
	// no receive posted, more requests than IRD, or a response without a request
	faultNoBuffer = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedNoBuffer}
	faultMSN      = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedMSN}
	faultMO       = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedMO}
	faultTooLong  = fault{rdmap.LayerDDP, ddp.ErrTypeUntagged, ddp.UntaggedTooLong}
)

// quotes reports whether the Terminate carries the header of the offending message (RFC 5040
// figure 10). Local and MPA errors carry none. A wrong version does: the T bit still gives the
// length of the header.
func (f fault) quotes() bool { return f.layer != rdmap.LayerMPA && f != faultLocal }

// termination is a Terminate message to be sent.
type termination struct {
	fault
	segLen int                // length of the offending segment
	ddp    []byte             // its DDP header; nil if not quoted
	rdmap  []byte             // the Read Request header; nil if not quoted
	access *verbs.AccessError // the refused access; nil for other faults
}

// terminationOf returns the Terminate for a fault in a segment. ulpdu may be nil.
func terminationOf(f fault, ulpdu []byte) *termination {
	t := &termination{fault: f}
	if ulpdu == nil || !f.quotes() {
		return t
	}
	n := ddp.UntaggedLen
	if ddp.IsTagged(ulpdu[0]) {
		n = ddp.TaggedLen
	}
	if len(ulpdu) < n {
		return t
	}
	t.segLen, t.ddp = len(ulpdu), append([]byte(nil), ulpdu[:n]...)
	_, op := rdmap.ParseControl(ulpdu[1])
	if f.layer == rdmap.LayerRDMAP && f.typ == rdmap.ErrTypeProtection && op == rdmap.OpReadRequest &&
		len(ulpdu) >= n+rdmap.ReadRequestLen && !ddp.IsTagged(ulpdu[0]) {
		t.rdmap = append([]byte(nil), ulpdu[n:n+rdmap.ReadRequestLen]...)
	}
	return t
}

// err returns the error reported on the local side.
func (t *termination) err() error {
	return &verbs.TerminateError{Layer: t.layer, Type: t.typ, Code: t.code, Header: t.ddp,
		Text: rdmap.TerminateText(t.layer, t.typ, t.code), Access: t.access}
}

// appendFPDU appends the Terminate message as an FPDU: the first and only message on queue 2
// (RFC 5040 section 4.8).
func (t *termination) appendFPDU(b []byte, crc bool) []byte {
	at := len(b)
	b = append(b, make([]byte, mpa.LengthLen+ddp.UntaggedLen)...)
	ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpTerminate), QN: ddp.QNTerminate,
		MSN: 1}.Put(b[at+mpa.LengthLen:])
	msg := rdmap.Terminate{Layer: t.layer, Type: t.typ, Code: t.code, DDPHeader: t.ddp, RDMAPHeader: t.rdmap}
	if t.ddp != nil {
		msg.SegLenValid, msg.SegLen = true, uint16(t.segLen)
	}
	b = msg.Append(b)
	return sealFPDU(b, at, crc)
}

// sealFPDU completes the FPDU that starts at b[at] with its length, padding and CRC.
func sealFPDU(b []byte, at int, crc bool) []byte {
	n := len(b) - at - mpa.LengthLen
	b[at], b[at+1] = byte(n>>8), byte(n)
	b = append(b, make([]byte, mpa.Pad(n)+mpa.CRCLen)...)
	if crc {
		end := len(b) - mpa.CRCLen
		mpa.PutCRC(b[end:], mpa.CRC(0, b[at:end]))
	}
	return b
}

// statusOf returns the completion status of a request for which the peer sent Terminate t.
func statusOf(t *rdmap.Terminate) verbs.WCStatus {
	switch {
	case t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeProtection, t.Layer == rdmap.LayerDDP &&
		t.Type == ddp.ErrTypeTagged:
		return verbs.WCRemAccessErr
	case t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeOperation, t.Layer == rdmap.LayerDDP &&
		t.Type == ddp.ErrTypeUntagged, isSIWOpcode(t):
		return verbs.WCRemInvReqErr
	}
	return verbs.WCRemOpErr
}

// eventOf returns the type of the asynchronous event for a connection that ended with t.
func eventOf(t *verbs.TerminateError) verbs.EventType {
	switch {
	case t.Remote, t.Layer == rdmap.LayerMPA, t.Type == rdmap.ErrTypeLocal:
		return verbs.EventQPFatal
	case t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.ErrTypeProtection, t.Layer == rdmap.LayerDDP &&
		t.Type == ddp.ErrTypeTagged:
		return verbs.EventQPAccessErr
	}
	return verbs.EventQPReqErr
}
