// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/binary"
	"io"
)

// AtomicRequestLen is the length of the Atomic Request header (RFC 7306 section 5.2.1).
const AtomicRequestLen = 52

// atomicOpMask selects the AOpCode, the low 4 bits of its 32-bit word; the other 28 bits are
// reserved (RFC 7306 section 5.2.1).
const atomicOpMask = 0x0F

// AtomicRequest is the header of an Atomic Request (RFC 7306 section 5.2.1).
type AtomicRequest struct {
	// Op is the operation, 4 bits.
	Op AtomicOp
	// ID is the requester's identifier, which the response repeats.
	ID uint32
	// STag identifies the buffer that contains the target.
	STag uint32
	// TO is the offset of the target in that buffer.
	TO uint64
	// AddSwap is the value that a FetchAdd adds, or that a CmpSwap stores.
	AddSwap uint64
	// AddSwapMask selects the top bits of the fields of a FetchAdd, or the bits that a CmpSwap
	// stores.
	AddSwapMask uint64
	// Compare is the value that a CmpSwap compares with. A FetchAdd does not use it.
	Compare uint64
	// CompareMask selects the bits that a CmpSwap compares. A FetchAdd does not use it.
	CompareMask uint64
}

// Put encodes the header into the first AtomicRequestLen bytes of b. It panics if b is shorter.
//
// For a FetchAdd, it ignores Compare and CompareMask, and sends zero and all ones (RFC 7306
// section 5.2.1).
func (r AtomicRequest) Put(b []byte) {
	_ = b[AtomicRequestLen-1]
	if r.Op == AtomicFetchAdd {
		r.Compare, r.CompareMask = 0, ^uint64(0)
	}
	binary.BigEndian.PutUint32(b, uint32(r.Op)&atomicOpMask)
	binary.BigEndian.PutUint32(b[4:], r.ID)
	binary.BigEndian.PutUint32(b[8:], r.STag)
	binary.BigEndian.PutUint64(b[12:], r.TO)
	binary.BigEndian.PutUint64(b[20:], r.AddSwap)
	binary.BigEndian.PutUint64(b[28:], r.AddSwapMask)
	binary.BigEndian.PutUint64(b[36:], r.Compare)
	binary.BigEndian.PutUint64(b[44:], r.CompareMask)
}

// ParseAtomicRequest decodes the first AtomicRequestLen bytes of b. It ignores reserved bits. If b
// is shorter, the error is io.ErrUnexpectedEOF.
func ParseAtomicRequest(b []byte) (AtomicRequest, error) {
	if len(b) < AtomicRequestLen {
		return AtomicRequest{}, io.ErrUnexpectedEOF
	}
	return AtomicRequest{
		Op:          AtomicOp(b[3] & atomicOpMask),
		ID:          binary.BigEndian.Uint32(b[4:]),
		STag:        binary.BigEndian.Uint32(b[8:]),
		TO:          binary.BigEndian.Uint64(b[12:]),
		AddSwap:     binary.BigEndian.Uint64(b[20:]),
		AddSwapMask: binary.BigEndian.Uint64(b[28:]),
		Compare:     binary.BigEndian.Uint64(b[36:]),
		CompareMask: binary.BigEndian.Uint64(b[44:]),
	}, nil
}
