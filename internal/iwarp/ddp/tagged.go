// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"encoding/binary"
	"io"
)

// TaggedLen is the length of the tagged header (RFC 5041 section 4.2).
const TaggedLen = 14

// Tagged is the header of a segment for a tagged buffer (RFC 5041 section 4.2).
type Tagged struct {
	// Last marks the last segment of a message.
	Last bool
	// ULP is the byte reserved for the layer above.
	ULP uint8
	// STag identifies the buffer.
	STag uint32
	// TO is the tagged offset of the segment's first byte.
	TO uint64
}

// Put encodes the header, with Version, into the first TaggedLen bytes of b. It panics if b is
// shorter.
func (h Tagged) Put(b []byte) {
	_ = b[TaggedLen-1]
	b[0] = controlTagged | Version
	if h.Last {
		b[0] |= controlLast
	}
	b[1] = h.ULP
	binary.BigEndian.PutUint32(b[2:], h.STag)
	binary.BigEndian.PutUint64(b[6:], h.TO)
}

// ParseTagged decodes the first TaggedLen bytes of b. It checks neither the T bit nor the version.
// If b is shorter, the error is io.ErrUnexpectedEOF.
func ParseTagged(b []byte) (Tagged, error) {
	if len(b) < TaggedLen {
		return Tagged{}, io.ErrUnexpectedEOF
	}
	return Tagged{
		Last: b[0]&controlLast != 0,
		ULP:  b[1],
		STag: binary.BigEndian.Uint32(b[2:]),
		TO:   binary.BigEndian.Uint64(b[6:]),
	}, nil
}
