// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import "unsafe"

// memoryAt is mapped memory of this process that is not Go's.
func memoryAt(address uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}
