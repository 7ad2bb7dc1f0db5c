// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package verbs

import "runtime/debug"

// unmapped reports whether the memory of a region is gone: reading it is a memory fault.
func unmapped(mem []byte) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { gone = recover() != nil }()
	sink = mem[0]
	return false
}

var sink byte
