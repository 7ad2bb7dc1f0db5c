// SPDX-License-Identifier: BSD-3-Clause

// Package verbs offers RDMA to Go: the objects of libibverbs (Device, Context, PD, MR, MW, CQ, QP) as handles with Go's
// conventions for errors, contexts and closing.
//
// # Handles and providers
//
// The handles are concrete types. A provider behind an interface does their work: libibverbs, for the devices of the kernel, in
// programs that are built with cgo on Linux; or the user-space iWARP RNIC of package siw, which runs anywhere without root,
// kernel modules or cgo. A handle refuses calls after its Close, enforces the order of parents and children, checks
// arguments and wraps errors; the provider does everything else.
//
// # Lifetimes
//
//	Device
//	  Context
//	    CompChannel
//	    CQ            (also below the CompChannel it was made with)
//	    PD
//	      MR  MW  AH
//	      SRQ
//	      QP          (also below its two CQs and its SRQ)
//
// Every object is closed explicitly, children before their parents. Closing a parent with live children returns an error that
// Is [ErrBusy] and names them. Close is idempotent and works on nil. A call on a closed handle fails with [ErrClosed], and
// Close ends every waiting call. The garbage collector closes nothing.
//
// # Names and numbers
//
// Objects, enums and attributes carry the names and values of rdma-core, so that its manual pages apply: IBV_WC_REM_ACCESS_ERR
// is [WCRemAccessErr]. Immediates and atomic operands are numbers in host order.
//
// # Memory
//
// [PD.AllocMR] is the first choice: it allocates page-aligned memory outside of the Go heap. [PD.RegMR] registers memory of the
// caller. From the post of a request to its completion, its memory belongs to the device. Memory that a peer may write or
// change by atomics can change at any time while the region is registered.
//
// # Fork
//
// Before the first device of the kernel is opened, ibv_fork_init(3) is called, as the environment variable RDMAV_FORK_SAFE would
// do. Package os/exec always works with registered memory: its child shares the memory of the parent until it calls exec. A
// child that C code has made and that does not call exec must not touch registered memory.
package verbs
