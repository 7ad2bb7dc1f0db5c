// SPDX-License-Identifier: BSD-3-Clause

package mapmem

import (
	"sync/atomic"
	"unsafe"
)

// Address returns the address of mem, 0 for nil.
func Address(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// Word returns the first 8 bytes of mem as an atomic number. It returns false if they are not
// aligned.
func Word(mem []byte) (*atomic.Uint64, bool) {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	return (*atomic.Uint64)(p), uintptr(p)%8 == 0
}
