// SPDX-License-Identifier: BSD-3-Clause

// Package verbs offers RDMA to Go: the objects of libibverbs (Device, Context, PD, MR, MW, CQ, QP)
// as handles with Go's conventions for errors, contexts and closing.
//
// # Vocabulary
//
// RDMA (remote direct memory access) lets a program read, write and atomically change memory of
// another process, on another host, without that process taking part. The device does it, and also
// sends messages. These words are used throughout:
//
//   - A [Device] is an RDMA network card, of hardware or software. A [Context] is an open device.
//     On iWARP it is called RNIC, on InfiniBand HCA.
//   - A memory region ([MR]) is memory that the device may access: it is registered, and stays in
//     place. It has a local key for the program's own requests (lkey) and a remote key for peers
//     (rkey; STag on iWARP). Who has the rkey can use the memory as the region's rights allow. A
//     [Remote] is the peer's memory as this side names it: address, length, rkey.
//   - A memory window ([MW]) is a further remote key, for a part of a region, that can be
//     invalidated.
//   - A queue pair ([QP]) is one end of a connection: a send queue and a receive queue, into which
//     the program posts work requests. RC is the reliable connection, the only one on iWARP; UD
//     sends datagrams to addresses ([AH]).
//   - A work request ([SendWR], [RecvWR]) says what to do, and with which memory: a list of
//     elements ([SGE]). Posting it returns at once. From then until it completes, the memory
//     belongs to the device.
//   - A completion ([WC]) says that a request is done, and how ([WCStatus]). Completions arrive in
//     a completion queue ([CQ]), which the program polls or waits for.
//   - Send and receive are two-sided: a Send takes a receive that the peer has posted before. RDMA
//     Write, RDMA Read and atomics are one-sided: the peer's program does nothing and learns
//     nothing. A Write with immediate is a Write that takes a receive too, and so tells the peer.
//   - A shared receive queue ([SRQ]) has receives for many QPs.
//   - A protection domain ([PD]) says which QPs may use which memory.
//
// A program that only wants a connection begins with an Endpoint of package cm, which makes all
// these objects. docs/guide.md has programs, step by step.
//
// # Handles and providers
//
// The handles are concrete types. A provider behind an interface does their work: libibverbs, for
// the devices of the kernel, in programs that are built with cgo on Linux; or the user-space iWARP
// RNIC of package usiw, which runs anywhere without root, kernel modules or cgo. A handle refuses
// calls after its Close, enforces the order of parents and children, checks arguments and wraps
// errors; the provider does everything else.
//
// # Requests and completions
//
// [Send], [Write], [Read], [FetchAdd] and the like return the ordinary requests; [Remote] is memory
// of the peer. A request is posted to a [QP], and its completion is polled from a [CQ]. A
// [Dispatcher] calls a function for each completion instead, and serves any number of QPs. Package
// cm makes connections; its Endpoint has a QP with everything that it needs.
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
// Every object is closed explicitly, children before their parents. Closing a parent with live
// children returns an error that Is [ErrBusy] and names them. Close is idempotent and works on nil.
// A call on a closed handle fails with [ErrClosed], and Close ends every waiting call. The garbage
// collector closes nothing.
//
// # Names and numbers
//
// Objects, enums and attributes carry the names and values of rdma-core, so that its manual pages
// apply: IBV_WC_REM_ACCESS_ERR is [WCRemAccessErr]. Immediates and atomic operands are numbers in
// host order.
//
// # Memory
//
// [PD.AllocMR] is the first choice: it allocates page-aligned memory outside of the Go heap.
// [PD.RegMR] registers memory of the caller. From the post of a request to its completion, its
// memory belongs to the device. Memory that a peer may write or change by atomics can change at any
// time while the region is registered.
//
// # Fork
//
// Before the first device of the kernel is opened, ibv_fork_init(3) is called, as the environment
// variable RDMAV_FORK_SAFE would do. Package os/exec always works with registered memory: its child
// shares the memory of the parent until it calls exec. A child that C code has made and that does
// not call exec must not touch registered memory.
package verbs
