// SPDX-License-Identifier: BSD-3-Clause

// Package verbs provides RDMA: the objects of libibverbs (Device, Context, PD, MR, MW, CQ, QP) as
// handles that follow Go's conventions for errors, contexts and closing.
//
// # Vocabulary
//
// RDMA (remote direct memory access) lets a program read, write and atomically modify the memory of
// a process on another host, without involving that process. The devices do the work; they also
// exchange messages. The terms:
//
//   - A [Device] is an RDMA network adapter, in hardware or software; iWARP calls it an RNIC,
//     InfiniBand an HCA. A [Context] is an open device.
//   - A memory region ([MR]) is registered memory: the device may access it, and it stays in place.
//     It has a local key (lkey) for the program's own requests and a remote key (rkey; STag on
//     iWARP) for peers. Anyone holding the rkey can access the memory, within the region's access
//     rights. A [Remote] identifies memory of the peer: address, length, rkey.
//   - A memory window ([MW]) is an additional remote key, for part of a region, that can be
//     invalidated.
//   - A queue pair ([QP]) is one end of a connection: a send queue and a receive queue, to which
//     the program posts work requests. RC is the reliable connected service, the only one on iWARP;
//     UD sends datagrams to addresses ([AH]).
//   - A work request ([SendWR], [RecvWR]) describes an operation and its memory, a scatter/gather
//     list ([SGE]). Posting returns at once. Until the request completes, its memory belongs to the
//     device.
//   - A completion ([WC]) reports that a request is done, and its status ([WCStatus]). Completions
//     are placed in a completion queue ([CQ]), which the program polls or waits on.
//   - Send and receive are two-sided: a Send consumes a receive that the peer posted. RDMA Write,
//     RDMA Read and atomics are one-sided: the peer's program is neither involved nor notified. A
//     Write with immediate also consumes a receive, and thereby notifies the peer.
//   - A shared receive queue ([SRQ]) holds receives for many QPs.
//   - A protection domain ([PD]) groups QPs with the memory that they may access.
//
// A program that only needs a connection starts with an Endpoint of package cm, which creates all
// these objects. docs/guide.md builds programs step by step.
//
// # Handles and providers
//
// The handles are concrete types, backed by a provider: libibverbs, for kernel devices, in programs
// built with cgo on Linux; or the user-space RNIC of package usiw (iWARP), which runs anywhere
// without root, kernel modules or cgo. A handle rejects calls after Close, enforces the order of
// parents and children, checks arguments and wraps errors; the provider does everything else.
//
// # Requests and completions
//
// [Send], [Write], [Read], [FetchAdd] and similar functions return the common requests; a [Remote]
// names their target in the peer's memory. A program posts a request to a [QP] and polls its
// completion from a [CQ]. A [Dispatcher] instead calls a function for each completion, for any
// number of QPs. Package cm establishes connections; its Endpoint bundles a QP with everything that
// it needs.
//
// # Lifetimes
//
//	Device
//	  Context
//	    CompChannel
//	    CQ            (also below the CompChannel it was created with)
//	    PD
//	      MR  MW  AH
//	      SRQ
//	      QP          (also below its two CQs and its SRQ)
//
// Every object is closed explicitly, children before their parents. Closing a parent with live
// children returns an error that Is [ErrBusy] and names them. Close is idempotent and works on nil.
// A call on a closed handle fails with [ErrClosed], and Close unblocks every waiting call. The
// garbage collector closes nothing.
//
// # Names and numbers
//
// Objects, enums and attributes have the names and values of rdma-core, so its manual pages apply:
// IBV_WC_REM_ACCESS_ERR is [WCRemAccessErr]. Immediates and atomic operands are numbers in host
// byte order.
//
// # Memory
//
// Prefer [PD.AllocMR], which allocates page-aligned memory outside the Go heap. [PD.RegMR]
// registers memory of the caller. From posting to completion, the memory of a request belongs to
// the device. Memory that a peer may write or modify by atomics can change at any time while it is
// registered.
//
// # Fork
//
// The package calls ibv_fork_init(3) before it opens the first kernel device, as the environment
// variable RDMAV_FORK_SAFE would. Package os/exec always works with registered memory: its child
// shares the parent's memory until it calls exec. A child forked by C code that does not call exec
// must not touch registered memory.
package verbs
