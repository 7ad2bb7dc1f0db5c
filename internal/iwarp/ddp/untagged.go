// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"encoding/binary"
	"io"
)

// UntaggedLen is the length of the untagged header (RFC 5041 section 4.3).
const UntaggedLen = 18

// Untagged is the header of a segment for an untagged buffer (RFC 5041 section 4.3).
type Untagged struct {
	// Last marks the last segment of a message.
	Last bool
	// ULP is the first of the five bytes reserved for the layer above.
	ULP uint8
	// InvSTag is the other four bytes, which RDMAP uses as the Invalidate STag (RFC 5040
	// section 4.1).
	InvSTag uint32
	// QN is the queue number.
	QN uint32
	// MSN is the message sequence number. It begins at 1 for each queue and direction.
	MSN uint32
	// MO is the offset of the segment's first byte in the message.
	MO uint32
}

// Put encodes the header, with Version, into the first UntaggedLen bytes of b. It panics if b is
// shorter.
func (h Untagged) Put(b []byte) {
	_ = b[UntaggedLen-1]
	b[0] = Version
	if h.Last {
		b[0] |= controlLast
	}
	b[1] = h.ULP
	binary.BigEndian.PutUint32(b[2:], h.InvSTag)
	binary.BigEndian.PutUint32(b[6:], h.QN)
	binary.BigEndian.PutUint32(b[10:], h.MSN)
	binary.BigEndian.PutUint32(b[14:], h.MO)
}

// ParseUntagged decodes the first UntaggedLen bytes of b. It checks neither the T bit nor the
// version. If b is shorter, the error is io.ErrUnexpectedEOF.
func ParseUntagged(b []byte) (Untagged, error) {
	if len(b) < UntaggedLen {
		return Untagged{}, io.ErrUnexpectedEOF
	}
	return Untagged{
		Last:    b[0]&controlLast != 0,
		ULP:     b[1],
		InvSTag: binary.BigEndian.Uint32(b[2:]),
		QN:      binary.BigEndian.Uint32(b[6:]),
		MSN:     binary.BigEndian.Uint32(b[10:]),
		MO:      binary.BigEndian.Uint32(b[14:]),
	}, nil
}
