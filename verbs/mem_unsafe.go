// SPDX-License-Identifier: BSD-3-Clause

package verbs

import "unsafe"

// iovaOf returns the address under which buf is registered: its own, or 0 for a zero-based region.
func iovaOf(buf []byte, access AccessFlags) uint64 {
	if access&AccessZeroBased != 0 || len(buf) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&buf[0])))
}
