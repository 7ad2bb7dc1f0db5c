// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// atomicLen is the number of bytes of an atomic's target and result.
const atomicLen = 8

// PostFetchAndAdd adds add to the 64-bit number at the start of remote (dat_ib_post_fetch_and_add).
// The original value is stored at the start of local. Numbers are in host byte order; at the
// target, in the peer's. The target must be aligned to 8 bytes, otherwise the error is
// [InvalidParameter]; both areas need at least 8 bytes, otherwise it is [LengthError]. The
// completion is a DTOExtension. The completion flags are those of [EP.PostRDMARead]; [EP.Support]
// reports whether and how the operation is performed.
func (ep *EP) PostFetchAndAdd(add uint64, local LMRTriplet, cookie uint64, remote RMRTriplet,
	flags CompletionFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: add}
	return ep.atomic("EP.PostFetchAndAdd", &wr, FetchAndAdd, local, cookie, remote, flags)
}

// PostCmpAndSwap stores swap in the 64-bit number at the start of remote if that equals compare
// (dat_ib_post_cmp_and_swap). Otherwise it is like [EP.PostFetchAndAdd].
func (ep *EP) PostCmpAndSwap(compare, swap uint64, local LMRTriplet, cookie uint64, remote RMRTriplet,
	flags CompletionFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: compare, Swap: swap}
	return ep.atomic("EP.PostCmpAndSwap", &wr, CmpAndSwap, local, cookie, remote, flags)
}

// PostMaskedFetchAndAdd is like PostFetchAndAdd for a word of several fields: each set bit in mask
// is the most significant bit of a field, and the carry out of it is dropped (RFC 7306 section
// 5.1.1). DAPL has no such call.
func (ep *EP) PostMaskedFetchAndAdd(add, mask uint64, local LMRTriplet, cookie uint64, remote RMRTriplet,
	flags CompletionFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: add, AddMask: mask}
	return ep.atomic("EP.PostMaskedFetchAndAdd", &wr, MaskedFetchAndAdd, local, cookie, remote, flags)
}

// PostMaskedCmpAndSwap compares the bits in compareMask and, if they are equal, stores those in
// swapMask (RFC 7306 section 5.1.2). DAPL has no such call.
func (ep *EP) PostMaskedCmpAndSwap(compare, compareMask, swap, swapMask uint64, local LMRTriplet, cookie uint64,
	remote RMRTriplet, flags CompletionFlags) error {
	wr := verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: compare, CompareMask: compareMask, Swap: swap,
		SwapMask: swapMask}
	return ep.atomic("EP.PostMaskedCmpAndSwap", &wr, MaskedCmpAndSwap, local, cookie, remote, flags)
}

func (ep *EP) atomic(call string, wr *verbs.SendWR, x Extension, local LMRTriplet, cookie uint64, remote RMRTriplet,
	flags CompletionFlags) error {
	switch {
	case local.SegmentLength < atomicLen || remote.SegmentLength < atomicLen:
		return fault(call, LengthError, NoSubtype,
			fmt.Errorf("%d bytes of the peer into %d: an atomic has %d", remote.SegmentLength, local.SegmentLength,
				atomicLen))
	case remote.VirtualAddress%atomicLen != 0:
		return fault(call, InvalidParameter, NoSubtype,
			fmt.Errorf("the address %#x is not a multiple of %d", remote.VirtualAddress, atomicLen))
	}
	wr.RemoteAddr, wr.RKey = remote.VirtualAddress, remote.RMRContext
	local.SegmentLength = atomicLen
	iov := [1]LMRTriplet{local}
	return ep.request(call, wr, iov[:], record{cookie: cookie, op: DTOExtension, ext: x}, flags, oneSided, InvalidArg7)
}
