// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package regmem

import (
	"runtime"
	"unsafe"
)

// ioSync represents everything outside the process. Like package syscall, this assumes that every
// write happens before every later read, because the race detector cannot follow data through the
// kernel.
var ioSync int64

// BeforeWrite is called before data leave the process.
func BeforeWrite() { runtime.RaceReleaseMerge(unsafe.Pointer(&ioSync)) }

// AfterRead is called after data arrive.
func AfterRead() { runtime.RaceAcquire(unsafe.Pointer(&ioSync)) }
