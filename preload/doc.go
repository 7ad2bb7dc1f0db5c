// SPDX-License-Identifier: BSD-3-Clause

// Command preload is the Go half of what "goverbs run" preloads: the user-space RNIC as a C
// library, built with -buildmode=c-shared. The other half, in the folder shim, has the functions of
// libibverbs and librdmacm in C and calls this one.
//
//	program --- ibv_*, rdma_* ---> shim (C) --- rnic_* of bridge.h ---> this package ---> verbs, cm ---> siw
//	        <--- eventfds, lists of events ---      <--- struct rnic_events ---
//
// docs/run.md describes both: states, invariants, locks, who owns which memory.
package main

func main() {}
