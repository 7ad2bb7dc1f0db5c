// SPDX-License-Identifier: BSD-3-Clause

package ibverbstest

import "unsafe"

// memory returns the n bytes at addr. The caller keeps them alive.
func memory(addr uint64, n uint32) []byte {
	p := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
