// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"runtime/debug"
	"unsafe"
)

// Guard calls access, which may fault only by reading or writing mem, and reports whether it
// succeeded. False means that part of mem is unmapped or does not permit the access; part of it may
// already have been written. Other panics propagate. If C code installed a signal handler after the
// Go runtime did, that handler receives the fault instead.
func Guard(mem []byte, access func()) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if ok {
			return
		}
		v := recover()
		fault, is := v.(interface{ Addr() uintptr }) // see debug.SetPanicOnFault
		if !is || fault.Addr()-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) >= uintptr(len(mem)) {
			panic(v)
		}
	}()
	access()
	return true
}
