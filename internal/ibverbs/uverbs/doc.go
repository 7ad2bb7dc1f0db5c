// SPDX-License-Identifier: BSD-3-Clause

// Package uverbs makes queues by the write commands of the kernel's /dev/infiniband/uverbsN
// (<rdma/ib_user_verbs.h>), for a driver whose queues a program uses without the driver's library.
//
// A device is a descriptor that libibverbs has opened, ibv_context.cmd_fd. A protection domain
// belongs to the descriptor by which it was made, so queues that are to use a protection domain of
// libibverbs must be made by the descriptor of libibverbs. The library does not know these queues.
// It must therefore not read the events of the descriptor, nor those of a completion channel that
// these queues use: it would take the number in an event, which is the Cookie here, for the address
// of an object of its own.
//
// Every call is one system call, and may be made by any goroutine. An error is the errno of the
// kernel, or [io.ErrShortWrite] if the kernel took only a part of a command; Linux takes a command
// whole or not at all.
package uverbs
