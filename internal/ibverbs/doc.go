// SPDX-License-Identifier: BSD-3-Clause

// Package ibverbs is the seam between package verbs and a device of the kernel: the calls of
// libibverbs as Go interfaces over flat records, objects for objects.
//
//	handles (verbs.QP, verbs.CQ, ...)
//	    |  SendWR, WC, QPAttr: the public records
//	provider of the kernel's devices (verbs/kernel_*.go)
//	    |  Send, WC, QPAttr of this package
//	what corrects a driver, if the device's driver needs it: a Context around a Context
//	    |  the same
//	libibverbs (verbs/cgo_verbs.go), or a device in Go
//
// The package decides nothing and has no state. Who implements it promises what libibverbs
// promises; a driver that does not is corrected by a wrapper, which embeds the interface and
// overrides what is wrong:
//
//	type pd struct{ ibverbs.PD }
//
//	func (p pd) AllocMW(typ int) (ibverbs.MW, error) { return nil, syscall.EOPNOTSUPP }
//
// A wrapper that gives out objects of its own gets them back as arguments, such as the CQs of a QP,
// and puts those that it wraps in their place before it passes the call on.
//
// The records have the layout of the C structures in verbs/cgo_verbs.h, which is checked when that
// is compiled, so that C reads requests from the lists of Go and writes completions into them. They
// hold no pointers: memory is an address, and an address handle, a region or a window in a request
// is the number that its method Handle returns. A post and a poll allocate nothing.
//
// An error is a syscall.Errno, NoErrno if the library gave none. Objects are destroyed after those
// that use them, and not used after that: the caller sees to both.
package ibverbs
