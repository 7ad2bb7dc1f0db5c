// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import "unsafe"

// counterAt returns the word at the beginning of b, which must be aligned, for use with
// sync/atomic.
func counterAt(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[0])) }
