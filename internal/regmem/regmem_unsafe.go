// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// Place copies src into registered memory. len(dst) == len(src). The last aligned word becomes
// visible after everything before it: who has seen it with sync/atomic sees the rest.
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

// Aligned reports whether an atomic operation can be done at the start of mem (RFC 7306 section
// 5.1: the address that the tagged offset resolves to is a multiple of 8, not the offset).
func Aligned(mem []byte) bool { return uintptr(unsafe.Pointer(&mem[0]))%8 == 0 }

// FetchAdd performs RFC 7306's FetchAdd on 8 aligned bytes and returns their original value. It is
// atomic against every other user of the word, the local CPU included. A mask of 0 is the addition
// of 64 bits.
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
