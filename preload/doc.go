// SPDX-License-Identifier: BSD-3-Clause

// Command preload is the Go half of the libraries that "goverbs run" preloads: the user-space RNIC
// as a C library, built with -buildmode=c-shared. The other half, in folder shim, implements the
// functions of libibverbs and librdmacm in C and calls this one.
//
//	          ibv_*, rdma_*              rnic_* of bridge.h
//	program ----------------> shim (C) ----------------------> this package --> verbs, cm --> usiw
//	        <----------------          <----------------------
//	         eventfds, event lists       struct rnic_events
//
// docs/run.md describes both halves: states, invariants, locks, and memory ownership.
package main

func main() {}
