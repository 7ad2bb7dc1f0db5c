// SPDX-License-Identifier: BSD-3-Clause

// Package uverbs makes queues by the write commands of the kernel's /dev/infiniband/uverbsN (<rdma/ib_user_verbs.h>), for a
// driver whose queues a program uses without the driver's library.
//
// The device is a descriptor that somebody else has opened: ibv_context.cmd_fd. A protection domain belongs to the descriptor by
// which it was made, so queues that are to use one of libibverbs' are made by libibverbs' descriptor. The library does not know
// these queues. It must therefore not read the events of the descriptor, nor of a completion channel that these queues use: it takes
// the number in an event, which is the Cookie here, for the address of an object of its own.
//
// Every call is one system call, and may be made by any goroutine. An error is the errno of the kernel, or [io.ErrShortWrite], which
// no kernel gives.
package uverbs
