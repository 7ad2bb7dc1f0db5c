// SPDX-License-Identifier: BSD-3-Clause

package ext

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// MaskedFetchAdd returns the result of a masked FetchAdd on memory with the value orig (RFC 7306
// section 5.1.1). A set bit in mask marks the most significant bit of a field: the carry out of it
// is dropped, like the carry out of bit 63. A zero mask gives a plain 64-bit addition, a mask of
// all ones XOR. The requester receives orig.
func MaskedFetchAdd(orig, add, mask uint64) uint64 { return rdmap.FetchAdd(orig, add, mask) }

// MaskedCmpSwap returns the result of a masked CmpSwap on memory with the value orig (RFC 7306
// section 5.1.2). If orig equals compare in every bit of compareMask, the result takes the bits of
// swapMask from swap and the others from orig. Otherwise the result is orig. The requester receives
// orig in both cases, and can tell them apart by it.
func MaskedCmpSwap(orig, compare, compareMask, swap, swapMask uint64) uint64 {
	return rdmap.CmpSwap(orig, compare, compareMask, swap, swapMask)
}

// FieldMask returns the FetchAdd mask for a word divided into fields of the given widths in bits,
// least significant first. Bits above the last field form another field. FieldMask(32, 16, 16) has
// bits 31, 47 and 63 set. The error Is verbs.ErrInvalid if a width is not positive or the widths
// add up to more than 64.
func FieldMask(widths ...int) (uint64, error) {
	var mask uint64
	used := 0
	for i, w := range widths {
		if w < 1 || w > 64-used {
			return 0, fmt.Errorf("ext: field %d is %d bits wide, of %d that are left: %w", i, w, 64-used,
				verbs.ErrInvalid)
		}
		used += w
		mask |= 1 << (used - 1)
	}
	return mask, nil
}

// FetchAddWR returns verbs.FetchAdd: the RFC's FetchAdd without a mask.
func FetchAddWR(at verbs.Remote, add uint64, into ...verbs.SGE) verbs.SendWR {
	return verbs.FetchAdd(at, add, into...)
}

// MaskedFetchAddWR returns a request that applies [MaskedFetchAdd] to the 64-bit integer at the
// start of the peer's memory. The original value is placed in into, as in [verbs.FetchAdd].
func MaskedFetchAddWR(at verbs.Remote, add, mask uint64, into ...verbs.SGE) verbs.SendWR {
	wr := verbs.FetchAdd(at, add, into...)
	wr.Opcode, wr.AddMask = verbs.WRMaskedAtomicFetchAndAdd, mask
	return wr
}

// CmpSwapWR returns verbs.CmpSwap: the RFC's CmpSwap without masks.
func CmpSwapWR(at verbs.Remote, compare, swap uint64, into ...verbs.SGE) verbs.SendWR {
	return verbs.CmpSwap(at, compare, swap, into...)
}

// MaskedCmpSwapWR returns a request that applies [MaskedCmpSwap] to the 64-bit integer at the start
// of the peer's memory. The original value is placed in into, as in [verbs.FetchAdd]; the swap took
// place if it equals compare in the bits of compareMask.
func MaskedCmpSwapWR(at verbs.Remote, compare, compareMask, swap, swapMask uint64, into ...verbs.SGE) verbs.SendWR {
	wr := verbs.CmpSwap(at, compare, swap, into...)
	wr.Opcode, wr.CompareMask, wr.SwapMask = verbs.WRMaskedAtomicCmpAndSwp, compareMask, swapMask
	return wr
}
