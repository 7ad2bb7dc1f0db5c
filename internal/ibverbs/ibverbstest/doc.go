// SPDX-License-Identifier: BSD-3-Clause

// Package ibverbstest is a device in Go behind the interfaces of package ibverbs, for tests of what
// uses them without C: it keeps all that libibverbs promises.
//
// A Device is a library with one device, whose QPs are connected to each other by their numbers.
// It has reliable QPs with Sends, Writes and Reads, with immediates and inline data; it has no
// windows, datagrams, shared receive queues and atomics. A request is executed while it is posted,
// or, if the peer has no receive for it, while that is posted. Requests complete in order, and a QP
// in ERR flushes everything.
//
// Memory is checked by the keys of regions, as a device does it. What is wrong ends the QP, and
// what a peer may not do ends both, with the event that a device has.
package ibverbstest
