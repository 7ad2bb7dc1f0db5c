// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

func TestAtomicOpString(t *testing.T) {
	require.Equal(t, "FetchAdd", AtomicFetchAdd.String())
	require.Equal(t, "AtomicOp(1)", AtomicOp(1).String())
	require.Equal(t, "CmpSwap", AtomicCmpSwap.String())
	require.Equal(t, "AtomicOp(15)", AtomicOp(15).String())
}

// fetchAddByBit implements the pseudocode of RFC 7306 section 5.1.1.
func fetchAddByBit(orig, add, mask uint64) uint64 {
	var result, carry uint64
	location := uint64(1)
	for bit := range 64 {
		if bit != 0 {
			location <<= 1
		}
		val1 := (orig & location) >> bit
		val2 := (add & location) >> bit
		sum := carry + val1 + val2
		carry = (sum & 2) >> 1
		sum &= 1
		if sum != 0 {
			result |= location
		}
		if mask&location != 0 {
			carry = 0
		}
	}
	return result
}

// cmpSwapByBit implements the prose of RFC 7306 section 5.1.2, bit by bit.
func cmpSwapByBit(orig, compare, compareMask, swap, swapMask uint64) uint64 {
	result := orig
	for bit := range 64 {
		location := uint64(1) << bit
		if compareMask&location != 0 && compare&location != orig&location {
			return orig
		}
		if swapMask&location != 0 {
			result = result&^location | swap&location
		}
	}
	return result
}

const ones = ^uint64(0)

var fetchAddVectors = []struct {
	name                  string
	orig, add, mask, want uint64
}{
	{"plain", 5, 3, 0, 8},
	{"add 0", 0x123456789abcdef0, 0, 0, 0x123456789abcdef0},
	{"wrap", ones, 1, 0, 0},
	{"mask of bit 63 is plain", ones, 2, 0x8000000000000000, 1},
	{"2x32, low carry dropped", 0x00000001ffffffff, 0x0000000100000001, 0x8000000080000000, 0x0000000200000000},
	{"the same, carry kept", 0x00000001ffffffff, 0x0000000100000001, 0, 0x0000000300000000},
	{"4x16", 0xffff7fff8000ffff, 0x0001000180000001, 0x8000800080008000, 0x0000800000000000},
	{"8x8", 0xff01807f00fffe10, 0x01ff800100ff02f0, 0x8080808080808080, 0x0000008000fe0000},
	{"all ones is XOR", 0xdeadbeefcafef00d, ones, ones, 0x2152411035010ff2},
	{"low 16 and upper 48", 0x0000ffffffffffff, 1, 0x8000, 0x0000ffffffff0000},
	{"subtract 1", 0x10, ones, 0, 0xf},
	{"field of one bit", 1, 1, 1, 0},
}

func TestFetchAdd(t *testing.T) {
	for _, v := range fetchAddVectors {
		require.Equal(t, v.want, FetchAdd(v.orig, v.add, v.mask), v.name)
		require.Equal(t, v.want, fetchAddByBit(v.orig, v.add, v.mask), "%s, by bit", v.name)
	}
	require.NoError(t, quick.CheckEqual(FetchAdd, fetchAddByBit, &quick.Config{MaxCount: 20000}))
	require.NoError(t, quick.Check(func(orig, add uint64) bool {
		return FetchAdd(orig, add, 0) == orig+add && FetchAdd(orig, add, 1<<63) == orig+add
	}, nil))
}

var cmpSwapVectors = []struct {
	name                                     string
	orig, compare, compareMask, swap, swMask uint64
	want                                     uint64
}{
	{"match", 5, 5, ones, 9, ones, 9},
	{"miss", 6, 5, ones, 9, ones, 6},
	{"no compare mask is a swap", 0x1122334455667788, 0xabcdef, 0, 0xa5a5a5a5a5a5a5a5, ones, 0xa5a5a5a5a5a5a5a5},
	{"compare low, swap high", 0x11223344aabbccdd, 0xaabbccdd, 0xffffffff, 0xdeadbeef00000000, 0xffffffff00000000,
		0xdeadbeefaabbccdd},
	{"difference outside the mask", 0xff00000000000001, 1, 0x00ffffffffffffff, 2, ones, 2},
	{"one masked bit differs", 0x8000000000000000, 0, 0x8000000000000000, ones, ones, 0x8000000000000000},
	{"no swap mask", 0x0123456789abcdef, 0x0123456789abcdef, ones, ones, 0, 0x0123456789abcdef},
	{"swap bits outside the mask", 0xf0, 0xf0, 0xff, ones, 0x0f, 0xff},
	{"take a lock bit", 0x1234, 0, 0x8000000000000000, 0x8000000000000000, 0x8000000000000000, 0x8000000000001234},
	{"lock bit is taken", 0x8000000000001234, 0, 0x8000000000000000, 0x8000000000000000, 0x8000000000000000,
		0x8000000000001234},
	{"compare bits outside the mask", 0xaa, 0xffffffffffffffaa, 0xff, 0x55, 0xff, 0x55},
	{"no mask at all is a read", 0xcafebabe00c0ffee, 1, 0, 2, 0, 0xcafebabe00c0ffee},
}

func TestCmpSwap(t *testing.T) {
	for _, v := range cmpSwapVectors {
		require.Equal(t, v.want, CmpSwap(v.orig, v.compare, v.compareMask, v.swap, v.swMask), v.name)
		require.Equal(t, v.want, cmpSwapByBit(v.orig, v.compare, v.compareMask, v.swap, v.swMask), "%s, by bit", v.name)
	}
	config := &quick.Config{MaxCount: 20000}
	require.NoError(t, quick.CheckEqual(CmpSwap, cmpSwapByBit, config))
	// Random values never match under a random mask, so derive one from the other.
	require.NoError(t, quick.Check(func(orig, noise, compareMask, swap, swapMask uint64) bool {
		compare := orig&compareMask | noise&^compareMask
		got := CmpSwap(orig, compare, compareMask, swap, swapMask)
		return got == orig&^swapMask|swap&swapMask && got == cmpSwapByBit(orig, compare, compareMask, swap, swapMask)
	}, config))
}
