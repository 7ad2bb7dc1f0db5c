// SPDX-License-Identifier: BSD-3-Clause

// Package ibverbstest implements a device in Go behind the interfaces of package ibverbs, so that
// code above them can be tested without C. It keeps every promise of libibverbs.
//
// A Device is a library with a single device. Its QPs are connected to each other by QP number. It
// supports reliable QPs with Sends, Writes and Reads, immediates and inline data, but no windows,
// datagrams, shared receive queues or atomics. A request is executed while it is posted or, if it
// needs a receive that the peer has not posted, while that receive is posted. Requests complete in
// order, and a QP in ERR flushes everything.
//
// Keys of regions are checked as hardware checks them. A local error moves the QP to ERR. A request
// that the peer must refuse moves both QPs to ERR, with the event that hardware would raise.
package ibverbstest
