// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"runtime/debug"
	"unsafe"
)

// Guard calls access, which reads or writes mem and nothing else that can fault, and reports
// whether it could: false means that memory of mem is gone, or may not be used in this way. Part of
// it may have been written then. Other panics go on. A signal handler that C code has installed
// after the Go runtime's gets the fault instead.
func Guard(mem []byte, access func()) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if ok {
			return
		}
		v := recover()
		fault, is := v.(interface{ Addr() uintptr }) // debug.SetPanicOnFault
		if !is || fault.Addr()-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) >= uintptr(len(mem)) {
			panic(v)
		}
	}()
	access()
	return true
}
