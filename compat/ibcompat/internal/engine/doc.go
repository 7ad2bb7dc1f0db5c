// SPDX-License-Identifier: BSD-3-Clause

// Package engine gives an iWARP device the semantics of InfiniBand. It is a provider over the
// handles of the device below. The peer must be such a device too: the two engines talk in
// messages, whose codec is package wire.
//
// A connection is full if both devices have the atomics and Immediate Data of RFC 7306, otherwise
// plain:
//
//	operation                          full                       plain
//	Send, short                        a message with the data, copied into the receive
//	Send, longer than the threshold    Writes into the receive, then a message that says so; or Parts, see below
//	Write, Read                        native
//	Write with immediate               native (1)                 Write, then a message
//	atomics                            native                     a message, executed by the peer's agent, and an Answer
//	Send longer than the receive       a message that says so; both sides fail
//
// (1) Immediate Data have no header. They are counted as messages all the same; solicited ones are
// messages as on the right.
//
// # Receives
//
// The inner receive queue has slots of the engine's own. The program's receives are advertised to
// the peer, in order: their length, and if a message may be longer than a slot, keys by which this
// peer can write into the receive until a message has taken it (open.go). At most wire.MaxTold
// receives are advertised at a time. A peer sends nothing for which it has no advert. So a message
// is never refused for want of a receive; one that must wait for it waits at the sender, with
// everything behind it (RNR). If the receiver has set a count of retries, the sender asks it so
// often, at its interval, and then fails.
//
// A QP that allows its peer no Writes advertises no keys, nor does a device that cannot open memory
// for one QP, as siw of the kernel. Long messages go into their receives in Parts, each of which
// fits a slot, as many at a time as the peer's hello says.
//
// # Confirmation
//
// Each header has the count of messages that its sender has taken. A request is sure when the
// peer's count covers its message, for a Write the next message behind it; a Read or an atomic when
// its answer has come, which makes the Writes before it sure too. A message can carry a question;
// there is at most one question under way in each direction. It is asked when a completion waits
// for it that the program asked for, or when the queue is half full: by the last message of those
// that are posted together, or if something stands behind that one by a message of its own, unless
// an answer that is under way tells it anyway. So a list of requests costs at most one message
// more, and its answer. The answer may wait a moment for a message of the peer's program (debt.go).
//
// # States of a connection
//
//	greeted   both sides know by the private data that the other is an engine; the QP is in RTS
//	            active: sends its hello at once     passive: sends it when the peer's has come, as iWARP demands
//	open      the peer's hello has come: requests go out
//	ending    the QP is in ERR. Bye, or another last message, is sent; nothing of the program's is
//	ended     nothing is under way below any more: everything has completed
//
// A side leaves ending when the peer's last message has come and its own has gone, when the inner
// connection has failed, or after closeTimeout. So what the peer has taken before is in its CQs,
// and nothing is lost because a socket is closed with data in it. The active side also waits for
// the peer's hello, because Linux's siw has a BUG for a connection that ends before its program
// knows of it; a passive side that has heard nothing ends at once.
//
// # QPs by hand
//
// A QP gets its connection from a connection manager (cm.go), or the program brings it up by Modify
// and the engine makes the connection (hand.go): it calls the peer's, or waits for its call at the
// rendezvous of the open device (rendezvous.go). Below it is the same; beside the states above such
// a QP can be
//
//	looking   in RTR, RTS or SQD without a connection whose hello has come: it calls, or waits (see hand.go)
//	gone      the peer has ended the connection. The QP stays in its state, as on InfiniBand, and the next request fails
//
// A QP whose peer is itself has no connection, and executes its requests itself, long ones in steps
// (self.go).
//
// # Invariants
//
//  1. Receive slots do not run out: each kind of message is bounded (slots.go), and a peer that
//     sends more ends the connection.
//  2. Own messages (answers, questions, Acks, Bye) never wait for the program's requests: they have
//     send slots of their own.
//  3. Send requests are issued and completed in the order of posting. Behind an emulated atomic no
//     Write or Read is issued before the Answer has come, nor an emulated atomic behind a Read,
//     because the peer's device and its agent are not ordered.
//  4. A request that fails on this side completes when everything before it is sure.
//  5. Everything of a message is checked before anything of it is done (arrived).
//  6. A receive is completed, or its memory given up, only when no peer can write into it any more
//     (open.go).
//  7. Connections progress whatever the program does; a program that polls or waits does the work
//     itself (pump.go). Nothing that is owed to the peer waits while nobody polls or waits
//     (debt.go).
//  8. Posting, polling and messages allocate nothing, but for the keys of receives. What a peer can
//     make this side keep is bounded.
//  9. A QP by hand takes one call at a time, and only from the QP that its program has named, at
//     that one's address, which knows a PSN of theirs. Before its hello a peer changes nothing but
//     which inner QP there is.
//  10. What looks for a peer, what watches a connection by hand, and the steps of a QP that is its
//     own peer are counted in qp.ending, and
//     begin before the state is ERR. So RESET and Destroy find nothing of them left.
//
// # Locks
//
//	pump.turn -> qp.mu -> region.mu | keys | debts.mu | cq.mu -> channel.mu | rendezvous.mu | gids.mu
//
// Inner handles are called with qp.mu held; they call nothing here. A rendezvous looks a QP up,
// lets its lock go and takes the QP's: an open device is closed after its QPs, and a QP that has
// gone meanwhile is in ERR.
//
// # Files
//
// device, context, region, channel, cq, qp: one object each; pump: who takes inner completions;
// debt: what may wait a moment; slots: registered memory for messages; send, recv: the two queues
// of a QP; open: keys of receives, and adverts of the peer's; message: what is sent; arrive: what
// comes in; agent: atomics of the peer; end: how a connection ends; cm: connections of a connection
// manager; hand: QPs by hand; rendezvous, reserve: where they are called; self: those that are
// their own peers; gid: their addresses.
package engine
