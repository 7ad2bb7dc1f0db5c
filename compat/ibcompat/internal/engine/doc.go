// SPDX-License-Identifier: BSD-3-Clause

// Package engine gives an iWARP device the semantics of InfiniBand. It is a provider layered on the
// verbs handles of the inner device. The peer must be such a device too: the two engines exchange
// messages, which package wire encodes.
//
// A connection is full if both inner devices implement the atomics and Immediate Data of RFC 7306,
// and plain otherwise:
//
//	operation                       full                        plain
//	Send, short                     a message with the data, copied into the receive
//	Send, longer than threshold     Writes into the receive, then a message; or Parts, see below
//	Write, Read                     native
//	Write with immediate            native (1)                  Write, then a message
//	atomics                         native                      a message, executed by the peer's
//	                                                            agent, which sends an Answer
//	Send longer than the receive    a message that says so; both sides fail
//
// (1) Immediate Data carry no header but count as messages. A solicited Write with immediate is
// sent as on a plain connection.
//
// # Receives
//
// The inner receive queue holds the engine's own slots. The program's receives are advertised to
// the peer in order: their length and, if a message may exceed a slot, keys that let this peer
// write into the receive until a message consumes it (open.go). At most wire.MaxTold receives are
// advertised at once. A peer sends nothing for which it holds no advert, so no message ever arrives
// without a receive. Instead a message that lacks one waits at the sender and holds up everything
// posted after it (RNR). If the receiver set an RNR retry count, the sender queries it that many
// times, at its RNR interval, and then fails.
//
// A QP that allows its peer no Writes advertises no keys. Neither does a device that cannot open
// memory to a single QP, such as the kernel's siw. Long messages then arrive in Parts, each of
// which fits a slot; the peer's hello limits how many may be outstanding.
//
// # Confirmation
//
// Each header carries the number of messages that its sender has taken. A message is confirmed when
// the peer's count covers it, and a Write when the count covers the next message after it. The
// response to a Read or an atomic confirms it and the Writes before it. A message can request an
// acknowledgement (wire.FlagAsk), with at most one request outstanding in each direction. A QP
// requests one when a signaled completion waits for it, or when the send queue is half full. The
// flag goes on the last message of a list posted together, or on a message of its own if the list
// does not end with a message; it is omitted if a response already on its way confirms the same
// requests. A list therefore costs at most one extra message and its acknowledgement, which may
// wait briefly for a message of the peer's program to carry it (debt.go).
//
// # Connection states
//
//	greeted   the private data have identified the other side as an engine; the QP is in RTS
//	            active: sends its hello at once
//	            passive: sends it after the peer's, as iWARP demands
//	open      the peer's hello arrived: requests are sent
//	ending    the QP is in ERR: only Bye, or another last message, is sent
//	ended     nothing is outstanding on the inner device: every request has completed
//
// A side leaves ending once the peer's last message has arrived and its own has been sent, once the
// inner connection has failed, or after closeTimeout. By then the CQs hold everything the peer had
// taken, and no data are lost to a socket that is closed with unread data. The active side also
// waits for the peer's hello, because Linux's siw hits a BUG when a connection ends before its
// program knows of it. A passive side that has heard nothing leaves at once.
//
// # Manual bring-up
//
// Either a connection manager connects a QP (cm.go), or the program brings it up by Modify and the
// engine connects it (hand.go): it calls the peer, or waits for the peer's call on the listener of
// the open device (rendezvous.go). The layers below are the same. In addition to the states above,
// such a QP can be
//
//	looking   in RTR, RTS or SQD, before the peer's hello: it calls or waits (hand.go)
//	gone      the peer closed the connection. As on InfiniBand the QP stays in its state,
//	          and its next request fails
//
// A QP that is its own peer has no connection. It executes its requests itself, long ones in steps
// (self.go).
//
// # Invariants
//
//  1. Receive slots do not run out. The number of outstanding messages of each kind is bounded
//     (slots.go), and a peer that exceeds a bound loses the connection.
//  2. The engine's own messages (Answers, acknowledgements and requests for them, Bye) never wait
//     for the program's requests: send slots are reserved for them.
//  3. Send requests are issued and completed in posting order. After an emulated atomic, no Write
//     or Read is issued until its Answer arrives, nor an emulated atomic after an unanswered Read,
//     because the peer's device and its agent are not ordered with each other.
//  4. A request that fails locally completes only after everything before it is confirmed.
//  5. A message is checked completely before any of it takes effect (arrived).
//  6. A receive completes, and its memory is released, only once the peer can no longer write into
//     it (open.go).
//  7. Connections progress whatever the program does; a program that polls or waits does the work
//     itself (pump.go). No acknowledgement stays delayed while nobody polls or waits (debt.go).
//  8. Posting, polling and sending messages do not allocate, except for the keys of receives. The
//     memory that a peer can make this side retain is bounded.
//  9. A QP brought up manually handles one call at a time. The call must come from the QP that the
//     program named, from that QP's address, and carry a PSN of the pair. Until the peer's hello
//     arrives, the peer can affect nothing but which inner QP is in use.
//  10. The goroutines that search for a peer, watch a manual connection or execute the steps of a
//     QP that is its own peer are counted in qp.ending and start before the state is ERR. RESET
//     and Destroy therefore wait for all of them.
//
// # Locks
//
//	pump.turn -> qp.mu -> region.mu | keys | debts.mu | rendezvous.mu | gids.mu
//	                      cq.mu -> channel.mu
//
// Inner handles are called with qp.mu held; they never call back. A rendezvous looks up a QP,
// releases its own lock and takes the QP's. That is safe: an open device is closed after its QPs,
// and a QP destroyed in between is in ERR.
//
// # Files
//
// device, context, region, channel, cq, qp: one object each; pump: who polls the inner CQ; debt:
// delayed acknowledgements; slots: registered memory for messages; send, recv: the two queues of a
// QP; open: keys of receives, and the peer's adverts; message: outgoing messages; arrive: incoming
// messages; agent: the peer's emulated atomics; end: how a connection ends; cm: connections of a
// connection manager; hand: QPs brought up manually; rendezvous: the listener that they are called
// on; self: QPs that are their own peers; gid: their addresses.
package engine
