// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"encoding/binary"
	"unsafe"
)

// Fetch copies src, in registered memory, to dst; len(dst) must equal len(src). If the memory
// changes meanwhile, each aligned word of 2, 4 or 8 bytes in src is still read whole, as a device
// would read it, provided that the processor loads words of that size. The built-in copy does not
// guarantee this, and tears words if src and dst are aligned differently.
//
//go:norace
//go:nocheckptr
func Fetch(dst, src []byte) {
	if len(src) == 0 {
		return
	}
	s, i := unsafe.Pointer(unsafe.SliceData(src)), 0
	if odd := int(-uintptr(s) % 8); odd != 0 {
		for w := 1; w < 8; w *= 2 {
			if odd&w != 0 && len(dst)-i >= w {
				fetchWord(dst[i:], unsafe.Add(s, i), w)
				i += w
			}
		}
	}
	for ; len(dst)-i >= 32; i += 32 {
		from, to := (*[4]uint64)(unsafe.Add(s, i)), (*[32]byte)(dst[i:])
		binary.NativeEndian.PutUint64(to[:], from[0])
		binary.NativeEndian.PutUint64(to[8:], from[1])
		binary.NativeEndian.PutUint64(to[16:], from[2])
		binary.NativeEndian.PutUint64(to[24:], from[3])
	}
	for ; len(dst)-i >= 8; i += 8 {
		binary.NativeEndian.PutUint64(dst[i:], *(*uint64)(unsafe.Add(s, i)))
	}
	for w := 4; w > 0; w /= 2 {
		if len(dst)-i >= w {
			fetchWord(dst[i:], unsafe.Add(s, i), w)
			i += w
		}
	}
}

// fetchWord copies an aligned word of 1, 2 or 4 bytes.
//
//go:norace
//go:nocheckptr
func fetchWord(dst []byte, s unsafe.Pointer, w int) {
	switch w {
	case 1:
		dst[0] = *(*byte)(s)
	case 2:
		binary.NativeEndian.PutUint16(dst, *(*uint16)(s))
	case 4:
		binary.NativeEndian.PutUint32(dst, *(*uint32)(s))
	}
}
