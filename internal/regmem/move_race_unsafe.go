// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package regmem

import "unsafe"

// move copies src into dst, as far as dst goes, without telling the race detector: copy is
// instrumented even in functions that are not.
//
//go:norace
//go:nocheckptr
func move(dst, src []byte) {
	n := len(dst)
	if n == 0 {
		return
	}
	d, s := unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0])
	i := 0
	for ; i < n && uintptr(unsafe.Add(d, i))%8 != 0; i++ {
		*(*byte)(unsafe.Add(d, i)) = *(*byte)(unsafe.Add(s, i))
	}
	for ; i+8 <= n; i += 8 {
		// the source may be unaligned; so may loads, where there is a race detector
		*(*uint64)(unsafe.Add(d, i)) = *(*uint64)(unsafe.Add(s, i))
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(d, i)) = *(*byte)(unsafe.Add(s, i))
	}
}
