// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package verbs

// unmapped reports whether the memory of a region is gone.
func unmapped(mem []byte) bool { return faults(mem) }
