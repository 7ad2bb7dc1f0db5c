// SPDX-License-Identifier: BSD-3-Clause

// Package ibcompat turns a device into one with the semantics of InfiniBand and all four 64-bit
// atomics: FetchAdd and CmpSwap, plain and masked. A program uses the device "ib:NAME" through the
// ordinary handles of packages verbs, cm and ext; nothing else in it changes:
//
//	dev, err := verbs.DeviceByName("ib:rxe0")
//	id, err := cm.Resolve(ctx, address, cm.Config{Device: dev})
//
// A program that needs nothing else of this package imports it for its effect. [Wrap] wraps a
// device that is not registered, or uses a [Config].
//
// docs/semantics.md describes how each operation is executed and which differences cannot be
// hidden. InfiniBand, RoCE and iWARP devices can be wrapped. For others Wrap returns a
// [TransportError].
//
// # iWARP
//
// An iWARP device lacks Sends with immediate, RNR retries and completions that imply arrival.
// Without RFC 7306 it also lacks atomics. Package internal/engine provides all of these by
// exchanging messages with the engine of the peer. The peer must therefore be such a device too;
// otherwise Connect and Accept fail with a [PeerError].
//
// Programs that bring up their QPs by Modify, with the peer's GID and QP number, work as well: the
// device has a GID for each of its IP addresses and makes the connection itself (Config.Rendezvous;
// [HandError], [RendezvousError]).
//
// The rest of this text is about InfiniBand and RoCE.
//
// # InfiniBand and RoCE
//
// These devices support everything except the masked atomics. Requests, lists and completions pass
// through unchanged, and the peer receives nothing that a plain device would not send, so it may be
// a program that does not use this package. Handles post and poll past the provider
// (verbs.ProviderQPBypass and ProviderCQBypass), at next to no cost.
//
// A masked atomic is composed of CmpSwaps in a loop: each compares the word with a guess of its
// value and swaps in the result of the operation. If the guess was wrong, the original value that
// is returned becomes the next guess. The first guess is the value that this QP last left in the
// word, if that was the last word it changed, and 0 otherwise: a CmpSwap with a wrong guess reveals
// as much as a FetchAdd of 0. A masked atomic on a word that nobody else changes therefore takes
// one CmpSwap, or two the first time. It is linearizable: it takes effect at the CmpSwap that
// succeeds, or, if it changes nothing, at the CmpSwap that read the value. Some connection always
// makes progress, but an individual one may starve while others change the word continuously. When
// the QP is closed or fails, the loop ends.
//
// # Life of a request
//
//	program --no masked atomic--> inner queue <--masked atomic-- composing <-- waiting <-- program
//	                                   |                           ^   |
//	                                   |     guess was wrong       |   | at most one of a QP;
//	inner CQ <-------------------------+---------------------------+   | later requests wait
//	    |                                                              v
//	    |                                                the program's completion
//	    +--> soft, filled by the driver while the program does not poll --> program
//
// States of a QP that composes masked atomics:
//
//	idle      nothing is being composed: requests and completions bypass the provider
//	busy      an inner request is queued or will be repeated; later requests wait in posting order
//	ending    a request failed locally, for example because its sink is gone: the inner QP is
//	          moving to ERR, and everything waits
//	flushing  the inner QP is in ERR: all requests go to the inner queue, which flushes them
//
// # Invariants
//
//  1. While a QP is busy, only the inner request of its masked atomic enters the inner queue.
//     Requests before the masked atomic are therefore executed before it, and later ones after it
//     (TestList).
//  2. The program gets its completions in posting order, each exactly once, whatever happens to the
//     QP: inner completions are replaced by the program's in place (TestEnds, TestDestroyed).
//  3. An inner request writes to a word owned by the QP rather than to the program's sink, which
//     several requests may share (TestSharedSink). The sink is written once, when the operation has
//     succeeded.
//  4. Composing continues even if the program neither polls nor waits (TestProgress): the driver of
//     the CQ polls then, with pauses. A program that polls does the work itself.
//  5. A CQ never holds more completions in soft than the inner CQ has room for.
//  6. The bypass is closed before an inner request is posted, and reopened when no completion of
//     one is outstanding and soft is empty.
//  7. A list without a masked atomic costs no allocation and no lock; a masked atomic allocates
//     nothing once the queues have grown (TestAllocNothing).
//
// # Locks
//
//	CQ.mu, QP.mu, CQ.gate
//	             region.mu | keys of a context | sinks
//
// A goroutine takes them from left to right. After a QP.mu it may take one of the second line;
// holding one of those it takes only the keys' lock and, in Dereg, the locks of the inner device.
// The inner handles are called with CQ.mu and QP.mu held: posts and polls do not block and do not
// call back.
//
// # Files
//
// device, context, domain, region, cq, qp: one object each, on top of plain forwarding
// (internal/forward); cm: connections; compose: the masked atomics of a QP; waiting: the requests
// that wait for them; sink: the 8-byte words; driver: the goroutine of a CQ; support: how an
// operation is executed.
package ibcompat
