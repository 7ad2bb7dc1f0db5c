// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "fmt"

// AtomicOp names an atomic operation (RFC 7306 section 5.2.1).
type AtomicOp uint8

// The atomic operations. Code 1 is reserved, the others are unassigned
// (RFC 7306 section 10).
const (
	// AtomicFetchAdd adds to the target (RFC 7306 section 5.1.1).
	AtomicFetchAdd AtomicOp = 0
	// AtomicCmpSwap replaces the target if it compares equal
	// (RFC 7306 section 5.1.2).
	AtomicCmpSwap AtomicOp = 2
)

// String returns the name of the operation in RFC 7306.
func (op AtomicOp) String() string {
	switch op {
	case AtomicFetchAdd:
		return "FetchAdd"
	case AtomicCmpSwap:
		return "CmpSwap"
	}
	return fmt.Sprintf("AtomicOp(%d)", uint8(op))
}

// FetchAdd returns what memory holding orig holds after a masked FetchAdd
// (RFC 7306 section 5.1.1). A bit set in mask is the most significant of a field
// whose carry is dropped; with a mask of 0 this is a 64-bit addition.
func FetchAdd(orig, add, mask uint64) uint64 {
	// With the top bit of each field cleared no carry leaves a field. The top
	// bit itself is the sum of both bits and the carry into it.
	return ((orig &^ mask) + (add &^ mask)) ^ ((orig ^ add) & mask)
}

// CmpSwap returns what memory holding orig holds after a masked CmpSwap
// (RFC 7306 section 5.1.2): where swapMask is set the bits of swap if orig
// equals compare wherever compareMask is set, else orig.
func CmpSwap(orig, compare, compareMask, swap, swapMask uint64) uint64 {
	if (compare^orig)&compareMask != 0 {
		return orig
	}
	return orig&^swapMask | swap&swapMask
}
