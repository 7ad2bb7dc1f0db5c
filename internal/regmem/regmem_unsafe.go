// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// Place copies src into dst, in registered memory; len(dst) must equal len(src). If dst ends on a
// multiple of 4 or 8, its last aligned word becomes visible after everything before it: whoever
// observes that word with sync/atomic observes the rest.
func Place(dst, src []byte) {
	n := len(src)
	if n == 0 {
		return
	}
	end := uintptr(unsafe.Pointer(&dst[0])) + uintptr(n)
	switch {
	case n >= 8 && end%8 == 0:
		move(dst[:n-8], src)
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&dst[n-8])), binary.NativeEndian.Uint64(src[n-8:]))
	case n >= 4 && end%4 == 0:
		move(dst[:n-4], src)
		atomic.StoreUint32((*uint32)(unsafe.Pointer(&dst[n-4])), binary.NativeEndian.Uint32(src[n-4:]))
	default:
		move(dst, src)
	}
}

// Aligned reports whether an atomic operation can be performed at the start of mem. RFC 7306
// section 5.1 requires the address, not the tagged offset, to be a multiple of 8.
func Aligned(mem []byte) bool { return uintptr(unsafe.Pointer(&mem[0]))%8 == 0 }

// FetchAdd performs RFC 7306's FetchAdd on 8 aligned bytes and returns their original value. It is
// atomic with respect to every other user of the word, the local CPU included. With a mask of 0 it
// is a plain 64-bit addition.
func FetchAdd(mem []byte, add, mask uint64) uint64 {
	p := (*uint64)(unsafe.Pointer(&mem[0]))
	if mask == 0 {
		return atomic.AddUint64(p, add) - add
	}
	for {
		v := atomic.LoadUint64(p)
		if atomic.CompareAndSwapUint64(p, v, rdmap.FetchAdd(v, add, mask)) {
			return v
		}
	}
}

// CmpSwap performs RFC 7306's CmpSwap on 8 aligned bytes and returns their original value, as
// FetchAdd does.
func CmpSwap(mem []byte, compare, compareMask, swap, swapMask uint64) uint64 {
	p := (*uint64)(unsafe.Pointer(&mem[0]))
	for {
		v := atomic.LoadUint64(p)
		next := rdmap.CmpSwap(v, compare, compareMask, swap, swapMask)
		if next == v || atomic.CompareAndSwapUint64(p, v, next) {
			return v
		}
	}
}
