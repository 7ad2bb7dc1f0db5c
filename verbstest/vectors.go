// SPDX-License-Identifier: BSD-3-Clause

package verbstest

// ones is the mask of all 64 bits.
const ones = ^uint64(0)

// fetchAddVector is a FetchAdd with field boundaries (RFC 7306 section 5.1.1): the original value,
// the operands and the result.
type fetchAddVector struct {
	name                string
	original, add, mask uint64
	result              uint64
}

var fetchAddVectors = []fetchAddVector{
	// Plain.
	{"F1", 0x0000000000000005, 0x0000000000000003, 0, 0x0000000000000008},
	// Add 0.
	{"F2", 0x123456789abcdef0, 0, 0, 0x123456789abcdef0},
	// Wrap.
	{"F3", 0xffffffffffffffff, 1, 0, 0},
	// Mask bit 63 = plain.
	{"F4", 0xffffffffffffffff, 2, 0x8000000000000000, 0x0000000000000001},
	// 2 x 32, low carry dropped.
	{"F5", 0x00000001ffffffff, 0x0000000100000001, 0x8000000080000000, 0x0000000200000000},
	// The same, carry kept.
	{"F6", 0x00000001ffffffff, 0x0000000100000001, 0, 0x0000000300000000},
	// 4 x 16.
	{"F7", 0xffff7fff8000ffff, 0x0001000180000001, 0x8000800080008000, 0x0000800000000000},
	// 8 x 8.
	{"F8", 0xff01807f00fffe10, 0x01ff800100ff02f0, 0x8080808080808080, 0x0000008000fe0000},
	// All ones = XOR.
	{"F9", 0xdeadbeefcafef00d, 0xffffffffffffffff, 0xffffffffffffffff, 0x2152411035010ff2},
	// Low 16 + upper 48.
	{"F10", 0x0000ffffffffffff, 1, 0x0000000000008000, 0x0000ffffffff0000},
	// Subtract 1.
	{"F11", 0x0000000000000010, 0xffffffffffffffff, 0, 0x000000000000000f},
	// 1-bit field at bit 0.
	{"F12", 1, 1, 1, 0},
}

// cmpSwapVector is one CmpSwap with masks (RFC 7306 section 5.1.2).
type cmpSwapVector struct {
	name                                   string
	original, cmp, cmpMask, swap, swapMask uint64
	result                                 uint64
}

var cmpSwapVectors = []cmpSwapVector{
	// Match.
	{"C1", 5, 5, ones, 9, ones, 9},
	// Miss.
	{"C2", 6, 5, ones, 9, ones, 6},
	// Compare mask 0 = swap.
	{"C3", 0x1122334455667788, 0xabcdef, 0, 0xa5a5a5a5a5a5a5a5, ones, 0xa5a5a5a5a5a5a5a5},
	// Compare low, swap high.
	{"C4", 0x11223344aabbccdd, 0x00000000aabbccdd, 0x00000000ffffffff, 0xdeadbeef00000000, 0xffffffff00000000,
		0xdeadbeefaabbccdd},
	// Difference outside the mask.
	{"C5", 0xff00000000000001, 1, 0x00ffffffffffffff, 2, ones, 2},
	// One masked bit differs.
	{"C6", 0x8000000000000000, 0, 0x8000000000000000, ones, ones, 0x8000000000000000},
	// Swap mask 0.
	{"C7", 0x0123456789abcdef, 0x0123456789abcdef, ones, ones, 0, 0x0123456789abcdef},
	// Swap bits outside the mask.
	{"C8", 0xf0, 0xf0, 0xff, ones, 0x0f, 0xff},
	// Set a free lock bit.
	{"C9", 0x1234, 0, 1 << 63, 1 << 63, 1 << 63, 0x8000000000001234},
	// Lock bit taken.
	{"C10", 0x8000000000001234, 0, 1 << 63, 1 << 63, 1 << 63, 0x8000000000001234},
	// Compare bits outside the mask.
	{"C11", 0xaa, 0xffffffffffffffaa, 0xff, 0x55, 0xff, 0x55},
	// Both masks 0 = atomic read.
	{"C12", 0xcafebabe00c0ffee, 1, 0, 2, 0, 0xcafebabe00c0ffee},
}
