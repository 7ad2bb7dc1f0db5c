// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package verbs

// mapMemory takes Go memory, whose large allocations are page-aligned, where there is no mmap. Objects of the Go heap
// do not move; the MR keeps the slice reachable.
func mapMemory(n int, _ bool) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) {}
