// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns 8 bytes as a number; false if they are not aligned.
func wordAt(mem []byte) (*atomic.Uint64, bool) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return (*atomic.Uint64)(p), uintptr(p)%8 == 0
}

// iovaOf returns the address under which buf is registered: its own, or 0 for a zero-based region.
func iovaOf(buf []byte, access AccessFlags) uint64 {
	if access&AccessZeroBased != 0 || len(buf) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&buf[0])))
}
