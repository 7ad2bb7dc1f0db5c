// SPDX-License-Identifier: BSD-3-Clause

// Package ibcompat makes of a device one that has the semantics of InfiniBand with all four
// atomics: plain and masked FetchAdd and CmpSwap of 64 bits. A program uses the device "ib:NAME"
// with the ordinary handles of packages verbs, cm and ext; nothing else of it changes:
//
//	dev, err := verbs.DeviceByName("ib:rxe0")
//	id, err := cm.Resolve(ctx, address, cm.Config{Device: dev})
//
// A program that needs nothing else of this package imports it for its effect. [Wrap] wraps a
// device that is not registered, or with a [Config].
//
// docs/semantics.md says for each operation how it is done, and what cannot be hidden. Devices of
// InfiniBand, RoCE and iWARP can be wrapped. For others Wrap returns a [TransportError].
//
// # iWARP
//
// A device of iWARP lacks Sends with immediates, waiting for receives, completions that mean
// arrival, and atomics unless it has RFC 7306. Package internal/engine gives it all of it, by
// messages to the engine of the peer. So the peer must be such a device too; if it is not, Connect
// and Accept fail with a [PeerError].
//
// A program that brings up its QPs by Modify, with the GID and the number of the peer's, does so
// there too: the device has a GID for each of its IP addresses, and makes the connection by itself
// (Config.Rendezvous; [HandError], [RendezvousError]).
//
// What follows here is about InfiniBand and RoCE.
//
// # InfiniBand and RoCE
//
// All but the masked atomics exists there and passes through: the inner device gets each request
// and each list as it is, the program gets each completion as it is, and the peer sees nothing that
// a plain device would not send. So the peer may be a program that knows nothing of this package.
// Handles post and poll past the provider (verbs.ProviderQPBypass and ProviderCQBypass), which
// costs next to nothing.
//
// A masked atomic is a loop of CmpSwaps: compare with a guess of the word's value, swap in what the
// operation makes of it. If the guess was wrong, the original value that comes back is the next
// guess. The first guess is the value that the QP itself has left in the word, if that is the word
// that it changed last, and otherwise 0, because a CmpSwap that guesses wrong tells as much as a
// FetchAdd of 0. So a masked atomic on a word that nobody else changes is one CmpSwap, or two the
// first time. It is linearizable: it takes effect at the CmpSwap that succeeds. An operation that
// changes nothing, like a CmpSwap whose comparison fails, takes effect at the CmpSwap that has read
// the value. Some connection always makes progress; which one is not said, so that one may starve
// while others change the word without pause. The end of the QP ends the loop.
//
// # Life of a request
//
//	          no masked atomic              masked atomic
//	program ------------------> inner queue <------------ composing (at most one of a QP) <---- waiting <---- program
//	                                 |                        ^      |                    what is posted while
//	                                 |      guess was wrong   |      | its completion     one is being composed
//	inner CQ <-----------------------+------------------------+      v
//	    |                                                         the program's completion
//	    +--> soft, filled by the driver while the program does not poll --> program
//
// States of a QP, as far as masked atomics go:
//
//	idle      nothing is being composed: requests and completions go past the provider
//	busy      an inner request is queued or will be repeated; what is posted waits, in the order of posting
//	ending    a request has failed here, as its sink is gone: the inner QP is moving to ERR, and everything waits
//	flushing  the inner QP is in ERR: everything goes to the inner queue, which flushes it in order
//
// # Invariants
//
//  1. While a QP is busy nothing but the inner request of its masked atomic enters the inner queue.
//     So what stands before the masked atomic has been executed before it, and what stands behind
//     it after it (TestList).
//  2. The program's completions come in the order of posting, each once, whatever becomes of the
//     QP: inner completions become the program's in their place (TestEnds, TestDestroyed).
//  3. An inner request writes to a word of the QP's own and not to the program's sink, which
//     requests may share (TestSharedSink). The sink is written once, when the operation has
//     succeeded.
//  4. What is composed goes on though the program neither polls nor waits (TestProgress): the
//     driver of the CQ polls then, with pauses. A program that polls does it itself.
//  5. A CQ never keeps more completions in soft than the inner CQ has room for.
//  6. The ways past the provider are shut before an inner request is posted, and open again when no
//     completion of one is left and soft is empty.
//  7. A list without a masked atomic costs no allocation and no lock; a masked one allocates
//     nothing once queues have grown (TestAllocNothing).
//
// # Locks
//
//	CQ.mu, QP.mu, CQ.gate
//	             region.mu | keys of a context | sinks
//
// A goroutine takes them from left to right; those of the second line after a QP.mu too, and
// nothing but the keys' and, in Dereg, the locks of the inner device while it holds one. The inner
// handles are called with CQ.mu and QP.mu held: posts and polls do not block and call nothing here.
//
// # Files
//
// device, context, domain, region, cq, qp: one object each, over what only passes on
// (internal/forward); cm: connections; compose: the masked atomics of a QP; waiting: what stands
// behind them; sink: the words of 8 bytes; driver: the goroutine of a CQ; support: how an operation
// is done.
package ibcompat
