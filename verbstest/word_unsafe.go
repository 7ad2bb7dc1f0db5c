// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import "unsafe"

// word returns the aligned word at off for use with sync/atomic, when the CPU and the device modify
// the same word.
func (m *mem) word(off int) *uint64 { return (*uint64)(unsafe.Pointer(&m.Bytes()[off])) }

// misalignment returns the address of buf modulo 8.
func misalignment(buf []byte) int { return int(uintptr(unsafe.Pointer(&buf[0])) & 7) }

// wordBytes returns the memory of words.
func wordBytes(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
