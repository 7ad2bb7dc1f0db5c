// SPDX-License-Identifier: BSD-3-Clause

//go:build !unix

package verbs

// unmapped reports whether the memory of a region is gone, which only systems with mmap do.
func unmapped([]byte) bool { return true }
