// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package regmem

// BeforeWrite is called before data leave the process, and AfterRead after data have come in, where
// package syscall does not do the same. They tell the race detector that what is written happens
// before what is read: it cannot see the way through the kernel.
func BeforeWrite() {}

// AfterRead: see BeforeWrite.
func AfterRead() {}
