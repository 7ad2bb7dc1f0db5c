// SPDX-License-Identifier: BSD-3-Clause

// Package queue reads and writes the queues that siw, the kernel's iWARP in software, shares with
// a program: send queue, receive queues and completion queue, mapped from the kernel
// (<rdma/siw-abi.h>). It has what the driver's library for C has, and the requests of RFC 7306, for
// which that library has no form.
//
// # Rings
//
// A queue is a ring of a power of two of entries. The program and the kernel each count what they
// have put or taken, modulo 2^32; neither sees the count of the other, so the counts are never
// compared. The entry itself says who owns it, by the bit VALID of its word:
//
//	                  VALID = 0             VALID = 1
//	SQ, RQ, SRQ       the program fills     the kernel reads, then clears the flags
//	CQ                the kernel fills      the program reads, then clears the word
//
// The owner of an entry may read and write all of it, and the other side may not touch it. Entries
// change hands in the order of the ring. So if the next entry does not belong to the program, the
// queue is full (SQ, RQ) or empty (CQ), and the program need not look at the entries behind it. The
// word (flags, number of elements, opcode; in a completion flags, opcode, status) is 32 bits,
// aligned, and is stored and loaded by sync/atomic. So whatever was stored in an entry before its
// word is visible to the side that has loaded the word: a release and an acquire, which the kernel
// does on its side by barriers. Go's atomics are sequentially consistent, therefore this holds too:
// a program that has stored VALID to an entry, and then finds that the kernel still has the entry
// before it, need not ring, because the kernel clears the flags of that entry before it looks at
// the next one.
//
// A request stays in the send queue only until the kernel begins with it: its entry is free long
// before its completion. So a queue that has room does not mean that the CQ has room; the caller
// must count the requests whose completions it has not taken.
//
// # The doorbell
//
// The kernel looks at a send queue when it is told to (uverbs' command to post, without a request)
// and goes on until the queue is empty, or a request in it has to wait; later it goes on by itself.
// Tell rings once for all requests that were put since the last Tell, or not at all if the kernel
// is still busy with earlier requests.
//
// # What is not trusted
//
// The kernel is trusted. But the memory belongs to the process too, and a bug in the process may
// write to it. So every number in a completion is checked before it is used as an index, and a
// completion that makes no sense gets the status StatusGeneral. The kernel on its side copies an
// entry before it checks it.
//
// # Closing
//
// The kernel frees the memory of a queue when the queue is destroyed and nobody maps it. An object
// here must not be used after its memory is unmapped. The caller makes sure of that with the lock
// under which it uses the object.
package queue
