// SPDX-License-Identifier: BSD-3-Clause

// Package queue reads and writes the queues that siw, the kernel's software iWARP, shares with a
// program: send queue, receive queues and completion queue, mapped from the kernel
// (<rdma/siw-abi.h>). It does what the driver's C library does. In addition it supports the
// requests of RFC 7306, which that library cannot express.
//
// # Rings
//
// A queue is a ring whose number of entries is a power of two. The program and the kernel each
// count the entries they have written or read, modulo 2^32. Neither sees the other's counter, so
// the counters are never compared. Ownership of an entry is in the entry itself, in the VALID bit
// of its word:
//
//	                  VALID = 0             VALID = 1
//	SQ, RQ, SRQ       the program fills     the kernel reads, then clears the flags
//	CQ                the kernel fills      the program reads, then clears the word
//
// The owner may read and write the whole entry; the other side must not touch it. Entries change
// owners in ring order. If the next entry does not belong to the program, the queue is full (SQ,
// RQ) or empty (CQ), and the program need not look at later entries.
//
// The word (flags, number of elements, opcode; in a completion flags, opcode, status) is 32 bits,
// aligned, and accessed with sync/atomic. Everything stored in an entry before its word is
// therefore visible to the side that loads the word: a release and an acquire, for which the kernel
// uses barriers. Go's atomics are sequentially consistent, which gives one more guarantee. A
// program that sets VALID in an entry, and then finds that the kernel still owns the previous
// entry, need not ring the doorbell: the kernel clears the flags of that entry before it looks at
// the next one.
//
// A request stays in the send queue only until the kernel starts to process it: its entry is free
// long before its completion arrives. Room in the send queue therefore does not imply room in the
// CQ. The caller must count the requests whose completions it has not polled.
//
// # The doorbell
//
// The kernel processes a send queue when the doorbell rings (the uverbs post command, without a
// request) and continues until the queue is empty or a request has to wait; it resumes a waiting
// request on its own. Tell rings once for all requests put since the last Tell, or not at all if
// the kernel is still busy with earlier requests.
//
// # Trust
//
// The kernel is trusted. The memory, however, belongs to the process too, and a bug in the process
// may overwrite it. Every number in a completion is therefore checked before it is used as an
// index, and a completion that makes no sense gets the status StatusGeneral. The kernel copies an
// entry before it checks it.
//
// # Closing
//
// The kernel frees the memory of a queue once the queue is destroyed and no longer mapped. An
// object of this package must not be used after its memory is unmapped, which the caller ensures
// with the lock under which it uses the object.
package queue
