// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package regmem

// move copies len(dst) bytes of src into dst.
func move(dst, src []byte) { copy(dst, src) }
