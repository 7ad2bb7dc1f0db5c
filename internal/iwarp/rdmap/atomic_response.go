// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/binary"
	"io"
)

// AtomicResponseLen is the length of the Atomic Response header according to figure 6 (RFC 7306
// section 5.2.2). Section 4 of that RFC says 32 bytes, which contradicts the figure.
const AtomicResponseLen = 12

// AtomicResponse is the header of an Atomic Response (RFC 7306 section 5.2.2).
type AtomicResponse struct {
	// ID is the identifier of the request.
	ID uint32
	// Value is the value of the target before the operation.
	Value uint64
}

// Put encodes the header into the first AtomicResponseLen bytes of b. It panics if b is shorter.
func (r AtomicResponse) Put(b []byte) {
	_ = b[AtomicResponseLen-1]
	binary.BigEndian.PutUint32(b, r.ID)
	binary.BigEndian.PutUint64(b[4:], r.Value)
}

// ParseAtomicResponse decodes the first AtomicResponseLen bytes of b. If b is shorter the error is
// io.ErrUnexpectedEOF.
func ParseAtomicResponse(b []byte) (AtomicResponse, error) {
	if len(b) < AtomicResponseLen {
		return AtomicResponse{}, io.ErrUnexpectedEOF
	}
	return AtomicResponse{
		ID:    binary.BigEndian.Uint32(b),
		Value: binary.BigEndian.Uint64(b[4:]),
	}, nil
}
