// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "fmt"

// AtomicOp is the code of an atomic operation (RFC 7306 section 5.2.1).
type AtomicOp uint8

// The atomic operations. Code 1 is reserved, the others are unassigned (RFC 7306 section 10).
const (
	// AtomicFetchAdd adds to the target (RFC 7306 section 5.1.1).
	AtomicFetchAdd AtomicOp = 0
	// AtomicCmpSwap replaces the target if it compares equal (RFC 7306 section 5.1.2).
	AtomicCmpSwap AtomicOp = 2
)

// String returns the name that RFC 7306 uses.
func (op AtomicOp) String() string {
	switch op {
	case AtomicFetchAdd:
		return "FetchAdd"
	case AtomicCmpSwap:
		return "CmpSwap"
	}
	return fmt.Sprintf("AtomicOp(%d)", uint8(op))
}

// FetchAdd returns the new value of a word after a masked FetchAdd on the value orig (RFC 7306
// section 5.1.1). Each bit set in mask is the most significant bit of a field; carries out of a
// field are dropped. If mask is 0, this is a 64-bit addition.
func FetchAdd(orig, add, mask uint64) uint64 {
	// With the top bit of each field cleared, no carry leaves a field. The top bit is then the sum
	// of the two top bits and the carry into it.
	return ((orig &^ mask) + (add &^ mask)) ^ ((orig ^ add) & mask)
}

// CmpSwap returns the new value of a word after a masked CmpSwap on the value orig (RFC 7306
// section 5.1.2). If orig and compare are equal in all bits selected by compareMask, the bits
// selected by swapMask are replaced with those of swap. Otherwise the value remains orig.
func CmpSwap(orig, compare, compareMask, swap, swapMask uint64) uint64 {
	if (compare^orig)&compareMask != 0 {
		return orig
	}
	return orig&^swapMask | swap&swapMask
}
