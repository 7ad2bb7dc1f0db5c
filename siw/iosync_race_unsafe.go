// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package siw

import (
	"runtime"
	"unsafe"
)

// ioSync stands for everything outside of the process. As package syscall does, what is written is taken to happen before
// what is read: the race detector cannot see the way through the kernel.
var ioSync int64

func beforeWrite() { runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync)) }

func afterRead() { runtime.RaceAcquire(unsafe.Pointer(&ioSync)) }
