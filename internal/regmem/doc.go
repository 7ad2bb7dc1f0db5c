// SPDX-License-Identifier: BSD-3-Clause

// Package regmem reads and writes registered memory for devices that execute requests in Go.
//
// Memory that a peer can access is not ordinary Go memory: it changes without the program's
// involvement, and the program may watch it with sync/atomic for data to arrive. Place and Fetch
// are therefore invisible to the race detector. The caller must ensure that the region is
// registered, contains the bytes and stays valid until the call returns; Guard covers memory for
// which no caller can. Nothing here allocates, and everything but Place and Guard is inlined.
package regmem
