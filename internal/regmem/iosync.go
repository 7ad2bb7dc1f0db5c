// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package regmem

// BeforeWrite is called before data leave the process, and AfterRead after data arrive, where
// package syscall does not do the same. They tell the race detector, which cannot follow data
// through the kernel, that writing happens before reading.
func BeforeWrite() {}

// AfterRead: see BeforeWrite.
func AfterRead() {}
