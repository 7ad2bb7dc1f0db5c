// SPDX-License-Identifier: BSD-3-Clause

// Package verbs offers RDMA to Go: the objects of libibverbs (Device, Context, PD, MR, MW, CQ, QP) as handles with Go's
// conventions for errors, contexts and closing.
//
// # Handles and providers
//
// The handles are concrete types. What executes them is a provider behind an interface: libibverbs, for the devices of the
// kernel, in programs that are built with cgo on Linux; or the user-space iWARP RNIC of package siw, which runs anywhere
// without root, kernel modules or cgo. A handle refuses calls after its Close, keeps the order of parents and children,
// checks arguments and wraps errors; the provider does the work.
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
// Every object is closed explicitly, children before their parents: closing a parent with live children fails with
// [ErrBusy] and names them. Close is idempotent and works on nil. A call on a closed handle fails with [ErrClosed], and
// Close ends every wait. Nothing is closed by the garbage collector.
//
// # Names and numbers
//
// Objects, enums and attributes carry the names and values of rdma-core, so that its manual pages apply: IBV_WC_REM_ACCESS_ERR
// is [WCRemAccessErr]. Immediates and atomic operands are numbers in host order.
//
// # Memory
//
// [PD.AllocMR] is the first choice: page-aligned memory outside of the Go heap. [PD.RegMR] registers memory of the
// caller's. Between the post of a request and its completion the memory it names belongs to the device. What a peer may
// write or change by atomics can change at any time while the region is registered.
//
// # Fork
//
// Before the first device of the kernel is opened, ibv_fork_init(3) is called, which the environment variable
// RDMAV_FORK_SAFE would have done. Package os/exec works with registered memory in any case: its child shares the memory of
// the parent until it calls exec. A child that runs on without exec, made by C code, must not touch registered memory.
package verbs
