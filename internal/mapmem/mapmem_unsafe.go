// SPDX-License-Identifier: BSD-3-Clause

package mapmem

import (
	"sync/atomic"
	"unsafe"
)

// Address returns where memory is, 0 for nil.
func Address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// Word returns 8 bytes as a number; false if they are not aligned.
func Word(mem []byte) (*atomic.Uint64, bool) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return (*atomic.Uint64)(p), uintptr(p)%8 == 0
}
