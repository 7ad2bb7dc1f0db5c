// SPDX-License-Identifier: BSD-3-Clause

package ibverbstest

import "unsafe"

// memory returns n bytes at an address, which somebody keeps alive.
func memory(addr uint64, n uint32) []byte {
	p := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
