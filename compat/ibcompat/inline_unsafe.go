// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/regmem"
)

// appendMemory appends the n bytes at an address of the process. The element of an inline request
// identifies memory by address alone, and the library reads it there.
func appendMemory(b []byte, addr uint64, n uint32) []byte {
	if n == 0 {
		return b
	}
	at := uintptr(addr)
	from := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
	end := len(b)
	for range n {
		b = append(b, 0)
	}
	regmem.Fetch(b[end:], from)
	return b
}

// addressOf returns the address of a non-empty slice.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
