// SPDX-License-Identifier: BSD-3-Clause

// Package uverbs creates queues with the write commands of the kernel's /dev/infiniband/uverbsN
// (<rdma/ib_user_verbs.h>), for a driver whose queues a program uses without the driver's
// user-space library.
//
// A device is given by a file descriptor that libibverbs opened, ibv_context.cmd_fd. A protection
// domain belongs to the descriptor that created it, so queues that use a protection domain of
// libibverbs must be created through the descriptor of libibverbs. The library does not know these
// queues. It must therefore not read the events of the descriptor, nor those of a completion
// channel that these queues use: it would mistake the number in an event, here the Cookie, for the
// address of one of its own objects.
//
// Every call is one system call and is safe for concurrent use. Errors are the errno of the kernel,
// or [io.ErrShortWrite] if the kernel accepted only part of a command, which Linux never does.
package uverbs
