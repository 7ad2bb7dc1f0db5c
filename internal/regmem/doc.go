// SPDX-License-Identifier: BSD-3-Clause

// Package regmem reads and writes registered memory for devices that execute requests in Go.
//
// Memory that a peer reaches is not ordinary Go memory: it changes without the program's doing, and
// the program may watch it with sync/atomic for data to arrive. So Place and Fetch are invisible to
// the race detector. That a region is registered, holds the bytes and stays until the call returns
// is the caller's to see to; Guard is for memory of which nobody can say that. Nothing here
// allocates, and all but Place and Guard is inlined.
package regmem
