// SPDX-License-Identifier: BSD-3-Clause

// Package siwring reads and writes the queues that siw, the kernel's iWARP in software, shares with a program: send queue, receive
// queues and completion queue, mapped from the kernel (<rdma/siw-abi.h>). It has what the driver's library for C has, and the
// requests of RFC 7306, for which that library has no form.
//
// # Rings
//
// A queue is a ring of a power of two of entries. The program and the kernel each count what they have put or taken, modulo 2^32;
// neither sees the count of the other, so the counts are never compared. Who owns an entry stands in the entry itself, in the bit
// VALID of its word:
//
//	                  VALID = 0             VALID = 1
//	SQ, RQ, SRQ       the program fills     the kernel reads, then clears the flags
//	CQ                the kernel fills      the program reads, then clears the word
//
// Whoever owns an entry may read and write all of it, and the other nothing. Entries change hands in the order of the ring, so an
// entry that is not the program's means that the queue is full (SQ, RQ) or empty (CQ); what is behind it need not be looked at.
// The word (flags, number of elements, opcode; in a completion flags, opcode, status) is 32 bits, aligned, and is stored and
// loaded by sync/atomic. So all that was stored in an entry before its word is visible to who has loaded the word: a release and an
// acquire, which the kernel does on its side by barriers. As Go's atomics are of one order, also this holds: who has stored VALID to
// an entry, and then finds that the kernel still has the entry before, need not ring; the kernel clears that entry's flags before
// it looks at the next.
//
// A request stays in the send queue only until the kernel begins with it: its entry is free long before its completion. That a CQ does
// not overflow is therefore the business of who counts requests.
//
// # The doorbell
//
// The kernel looks at a send queue when it is told to (uverbs' command to post, without a request) and goes on until the queue
// is empty, or a request in it has to wait, which it then does by itself. Tell rings once for all that was put since the last Tell, or
// not at all if the kernel is still busy with what is before that.
//
// # What is not trusted
//
// The kernel is. The memory is that of the process, though, and a bug in the process may write to it. So every number from a completion is
// checked before it is used as an index; a completion that makes no sense has the status StatusGeneral. The kernel on its side checks
// copies.
//
// # Closing
//
// The kernel frees the memory of a queue when the queue is destroyed and nobody maps it. An object here must not be used after
// its memory is unmapped. Each has one user at a time, whose lock also excludes that.
package siwring
