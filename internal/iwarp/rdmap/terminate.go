// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/binary"
	"io"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

// Lengths of the Terminate header (RFC 5040 section 4.8).
const (
	// TerminateLen is the length of a Terminate header that quotes nothing (RFC 5040 section 4.8).
	TerminateLen = 4
	// MaxTerminateLen is the length of a Terminate header that quotes a Read Request (RFC 5040
	// section 4.8).
	MaxTerminateLen = TerminateLen + segLenLen + ddp.UntaggedLen + ReadRequestLen

	segLenLen = 2 // DDP Segment Length
)

// HdrCt bits in the third byte of the Terminate header (RFC 5040 section 4.8). The rest of that
// byte and the fourth byte are reserved: senders set them to zero, receivers ignore them.
const (
	hdrSegLen = 0x80 // M: DDP Segment Length valid
	hdrDDP    = 0x40 // D: DDP header included
	hdrRDMAP  = 0x20 // R: RDMAP header included
)

// Terminate is the header of a Terminate message, which gives the reason for ending the stream
// (RFC 5040 section 4.8).
type Terminate struct {
	// Layer is the layer that detected the error, 4 bits.
	Layer uint8
	// Type is the error type, 4 bits, whose meaning depends on Layer.
	Type uint8
	// Code is the error code, whose meaning depends on Layer and Type.
	Code uint8
	// SegLenValid is the M bit: SegLen is valid.
	SegLenValid bool
	// SegLen is the length of the offending DDP segment.
	SegLen uint16
	// DDPHeader is the DDP header of that segment, ddp.TaggedLen or ddp.UntaggedLen bytes depending
	// on its T bit, or nil if it is not quoted.
	DDPHeader []byte
	// RDMAPHeader is the header of the offending Read Request, ReadRequestLen bytes, or nil if it
	// is not quoted.
	RDMAPHeader []byte
}

// Append appends the header to b, in the RFC's layout. DDPHeader and RDMAPHeader may be longer than
// the headers, for example the whole segment: only the headers are appended. A slice that is too
// short for its header is omitted.
func (t *Terminate) Append(b []byte) []byte {
	var (
		ddpHeader   = t.DDPHeader[:ddpHeaderLen(t.DDPHeader)]
		rdmapHeader []byte
		flags       byte
	)
	if t.SegLenValid {
		flags |= hdrSegLen
	}
	if len(ddpHeader) > 0 {
		flags |= hdrDDP
	}
	if len(t.RDMAPHeader) >= ReadRequestLen {
		rdmapHeader = t.RDMAPHeader[:ReadRequestLen]
		flags |= hdrRDMAP
	}
	b = append(b, t.Layer<<4|t.Type&0x0F, t.Code, flags, 0)
	if flags&(hdrSegLen|hdrDDP) != 0 {
		b = binary.BigEndian.AppendUint16(b, t.SegLen)
	}
	b = append(b, ddpHeader...)
	return append(b, rdmapHeader...)
}

// ParseTerminate decodes a Terminate header in the RFC's layout. The quoted headers are parts of b,
// not copies. Bytes after them are ignored.
//
// If b is too short, the error is io.ErrUnexpectedEOF. The fields that b contains are set
// nevertheless, so that a truncated quotation does not hide the cause.
func ParseTerminate(b []byte) (Terminate, error) {
	if len(b) < TerminateLen {
		return Terminate{}, io.ErrUnexpectedEOF
	}
	return parseTerminate(b, b[0]>>4, b[0]&0x0F, b[2])
}

// parseTerminate decodes b, which has at least TerminateLen bytes. The caller has decoded layer,
// type and HdrCt bits.
func parseTerminate(b []byte, layer, typ, flags uint8) (Terminate, error) {
	t := Terminate{Layer: layer, Type: typ, Code: b[1]}
	b = b[TerminateLen:]
	// The RFC defines the length as present if D is set, and as valid if M is set.
	if flags&(hdrSegLen|hdrDDP) != 0 {
		if len(b) < segLenLen {
			return t, io.ErrUnexpectedEOF
		}
		t.SegLenValid = flags&hdrSegLen != 0
		t.SegLen = binary.BigEndian.Uint16(b)
		b = b[segLenLen:]
	}
	if flags&hdrDDP != 0 {
		n := ddpHeaderLen(b)
		if n == 0 {
			return t, io.ErrUnexpectedEOF
		}
		t.DDPHeader, b = b[:n:n], b[n:]
	}
	if flags&hdrRDMAP != 0 {
		if len(b) < ReadRequestLen {
			return t, io.ErrUnexpectedEOF
		}
		t.RDMAPHeader = b[:ReadRequestLen:ReadRequestLen]
	}
	return t, nil
}

// ddpHeaderLen returns the length of the DDP header at the beginning of b, or 0 if it is not
// complete.
func ddpHeaderLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	n := ddp.UntaggedLen
	if ddp.IsTagged(b[0]) {
		n = ddp.TaggedLen
	}
	if len(b) < n {
		return 0
	}
	return n
}
