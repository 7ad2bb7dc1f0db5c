// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package regmem

import (
	"runtime"
	"unsafe"
)

// ioSync stands for everything outside of the process. As package syscall does, what is written is
// taken to happen before what is read: the race detector cannot see the way through the kernel.
var ioSync int64

// BeforeWrite is called before data leave the process.
func BeforeWrite() { runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync)) }

// AfterRead is called after data have come in.
func AfterRead() { runtime.RaceAcquire(unsafe.Pointer(&ioSync)) }
