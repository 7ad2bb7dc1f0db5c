// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package verbs

// mapMemory allocates Go memory on systems without mmap. Large allocations of Go are page-aligned.
// Objects of the Go heap do not move; the MR keeps the slice reachable.
func mapMemory(n int, _ bool) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) {}
