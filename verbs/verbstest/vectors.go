// SPDX-License-Identifier: BSD-3-Clause

package verbstest

// ones is the mask of all 64 bits.
const ones = ^uint64(0)

// fetchAddVector is one FetchAdd with field boundaries (RFC 7306 section 5.1.1): what memory held, the operands, what it
// holds afterwards.
type fetchAddVector struct {
	name                string
	original, add, mask uint64
	result              uint64
}

var fetchAddVectors = []fetchAddVector{
	{"F1", 0x0000000000000005, 0x0000000000000003, 0, 0x0000000000000008},                  // plain
	{"F2", 0x123456789abcdef0, 0, 0, 0x123456789abcdef0},                                   // add 0
	{"F3", 0xffffffffffffffff, 1, 0, 0},                                                    // wrap
	{"F4", 0xffffffffffffffff, 2, 0x8000000000000000, 0x0000000000000001},                  // mask bit 63 = plain
	{"F5", 0x00000001ffffffff, 0x0000000100000001, 0x8000000080000000, 0x0000000200000000}, // 2 x 32, low carry dropped
	{"F6", 0x00000001ffffffff, 0x0000000100000001, 0, 0x0000000300000000},                  // the same, carry kept
	{"F7", 0xffff7fff8000ffff, 0x0001000180000001, 0x8000800080008000, 0x0000800000000000}, // 4 x 16
	{"F8", 0xff01807f00fffe10, 0x01ff800100ff02f0, 0x8080808080808080, 0x0000008000fe0000}, // 8 x 8
	{"F9", 0xdeadbeefcafef00d, 0xffffffffffffffff, 0xffffffffffffffff, 0x2152411035010ff2}, // all ones = XOR
	{"F10", 0x0000ffffffffffff, 1, 0x0000000000008000, 0x0000ffffffff0000},                 // low 16 + upper 48
	{"F11", 0x0000000000000010, 0xffffffffffffffff, 0, 0x000000000000000f},                 // subtract 1
	{"F12", 1, 1, 1, 0}, // 1-bit field at bit 0
}

// cmpSwapVector is one CmpSwap with masks (RFC 7306 section 5.1.2).
type cmpSwapVector struct {
	name                                   string
	original, cmp, cmpMask, swap, swapMask uint64
	result                                 uint64
}

var cmpSwapVectors = []cmpSwapVector{
	{"C1", 5, 5, ones, 9, ones, 9}, // match
	{"C2", 6, 5, ones, 9, ones, 6}, // miss
	{"C3", 0x1122334455667788, 0xabcdef, 0, 0xa5a5a5a5a5a5a5a5, ones, 0xa5a5a5a5a5a5a5a5},                                          // compare mask 0 = swap
	{"C4", 0x11223344aabbccdd, 0x00000000aabbccdd, 0x00000000ffffffff, 0xdeadbeef00000000, 0xffffffff00000000, 0xdeadbeefaabbccdd}, // compare low, swap high
	{"C5", 0xff00000000000001, 1, 0x00ffffffffffffff, 2, ones, 2},                                                                  // difference outside of the mask
	{"C6", 0x8000000000000000, 0, 0x8000000000000000, ones, ones, 0x8000000000000000},                                              // one masked bit differs
	{"C7", 0x0123456789abcdef, 0x0123456789abcdef, ones, ones, 0, 0x0123456789abcdef},                                              // swap mask 0
	{"C8", 0xf0, 0xf0, 0xff, ones, 0x0f, 0xff},                                                                                     // swap bits outside of the mask
	{"C9", 0x1234, 0, 1 << 63, 1 << 63, 1 << 63, 0x8000000000001234},                                                               // set a free lock bit
	{"C10", 0x8000000000001234, 0, 1 << 63, 1 << 63, 1 << 63, 0x8000000000001234},                                                  // lock bit taken
	{"C11", 0xaa, 0xffffffffffffffaa, 0xff, 0x55, 0xff, 0x55},                                                                      // compare bits outside of the mask
	{"C12", 0xcafebabe00c0ffee, 1, 0, 2, 0, 0xcafebabe00c0ffee},                                                                    // both masks 0 = atomic read
}
