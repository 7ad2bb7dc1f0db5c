// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The model's atomics follow RFC 7306 section 5.1 bit by bit. They share no code with the
// implementation under test.

// modelFetchAdd is the FetchAdd of section 5.1.1: a carry propagates to the next bit, except from a
// bit that is set in mask.
func modelFetchAdd(old, add, mask uint64) (sum uint64) {
	carry := uint64(0)
	for bit := range 64 {
		s := old>>bit&1 + add>>bit&1 + carry
		sum |= s & 1 << bit
		if carry = s >> 1; mask>>bit&1 == 1 {
			carry = 0
		}
	}
	return sum
}

// modelCmpSwap is the CmpSwap of section 5.1.2: if no bit selected by compareMask differs, the bits
// selected by swapMask are replaced with those of swap.
func modelCmpSwap(old, compare, compareMask, swap, swapMask uint64) (result uint64) {
	for bit := range 64 {
		if compareMask>>bit&1 == 1 && old>>bit&1 != compare>>bit&1 {
			return old
		}
		from := old
		if swapMask>>bit&1 == 1 {
			from = swap
		}
		result |= from >> bit & 1 << bit
	}
	return result
}

// TestModelAtomics checks the model's own atomics against examples worked out by hand.
func TestModelAtomics(t *testing.T) {
	const all = ^uint64(0)
	for _, c := range []struct{ old, add, mask, result uint64 }{
		{5, 3, 0, 8},
		{0xff, 1, 0, 0x100},
		{0xff, 1, 0x80, 0},
		{0xff, 1, 0x40, 0x80},
		{0xff, 1, 1, 0xfe},
		{all, 1, 0, 0},
		{all, 2, 1 << 63, 1},
		{0x0001_ffff_7fff_8000, 0x0001_0001_0001_8000, modelMask, 0x0002_0000_8000_0000},
		{0b1100, 0b1010, all, 0b0110},
	} {
		require.Equal(t, c.result, modelFetchAdd(c.old, c.add, c.mask), "%+v", c)
	}
	for _, c := range []struct{ old, compare, compareMask, swap, swapMask, result uint64 }{
		{5, 5, all, 9, all, 9},
		{6, 5, all, 9, all, 6},
		{6, 5, 0, 9, all, 9},
		{0x1234, 0xff34, 0xff, 0x5678, 0xff00, 0x5634},
		{0x1234, 0x1235, 0xff, 0x5678, 0xff00, 0x1234},
		{0x1234, 0x1235, 0xff00, 0, 0xf, 0x1230},
		{1 << 63, 0, 1 << 63, 0, all, 1 << 63},
		{7, 7, all, 0, 0, 7},
	} {
		require.Equal(t, c.result, modelCmpSwap(c.old, c.compare, c.compareMask, c.swap, c.swapMask), "%+v", c)
	}
}
