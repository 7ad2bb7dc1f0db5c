// SPDX-License-Identifier: BSD-3-Clause

// Package ibverbs is the seam between package verbs and kernel devices: the calls of libibverbs as
// Go interfaces over flat records, one interface per kind of object.
//
//	handles (verbs.QP, verbs.CQ, ...)
//	    |  SendWR, WC, QPAttr: the public records
//	provider of the kernel devices (verbs/kernel_*.go)
//	    |  Send, WC, QPAttr of this package
//	a wrapper that corrects the driver, if it needs one: a Context around a Context
//	    |  the same
//	libibverbs (verbs/cgo_verbs.go), or a device in Go
//
// The package makes no decisions and holds no state. An implementation promises what libibverbs
// promises. A driver that falls short is corrected by a wrapper, which embeds the interface and
// overrides the methods that are wrong:
//
//	type pd struct{ ibverbs.PD }
//
//	func (p pd) AllocMW(typ int) (ibverbs.MW, error) { return nil, syscall.EOPNOTSUPP }
//
// A wrapper that returns objects of its own gets them back as arguments, for example as the CQs of
// a QP. It must replace them with the objects they wrap before it passes the call on.
//
// The records have the layout of the C structures in verbs/cgo_verbs.h, which is checked at compile
// time, so C reads requests from Go's lists and writes completions into them. They hold no
// pointers: memory is given by address, and an address handle, region or window in a request by the
// number that its Handle method returns. Posting and polling allocate nothing.
//
// Every error is a syscall.Errno, or NoErrno if the library set none. The caller destroys objects
// only after those that use them, and does not use an object once it is destroyed.
package ibverbs
