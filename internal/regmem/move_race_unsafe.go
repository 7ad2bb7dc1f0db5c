// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package regmem

import "unsafe"

// move copies len(dst) bytes of src into dst, unseen by the race detector. The built-in copy is
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
		// src may be unaligned; the platforms of the race detector permit unaligned loads
		*(*uint64)(unsafe.Add(d, i)) = *(*uint64)(unsafe.Add(s, i))
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(d, i)) = *(*byte)(unsafe.Add(s, i))
	}
}
