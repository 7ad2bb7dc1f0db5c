// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package mapmem

// Map allocates Go memory on systems without mmap. Large Go allocations are page-aligned. Objects
// of the Go heap do not move, and the MR keeps the slice reachable.
func Map(n int, _ bool) ([]byte, error) { return make([]byte, n), nil }

// Unmap leaves the memory to Go.
func Unmap([]byte) {}
