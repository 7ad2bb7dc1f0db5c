// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import "unsafe"

// memoryAt returns mapped memory of this process outside Go's heap.
func memoryAt(address uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}
