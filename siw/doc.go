// SPDX-License-Identifier: BSD-3-Clause

// Package siw is a complete iWARP RNIC in user space: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040) over
// TCP, with the atomic operations and Immediate Data of RFC 7306. It needs no kernel module, no privileges and no cgo, and
// speaks the wire protocol of Linux's siw driver and of iWARP hardware.
//
//	      verbs.QP                                             verbs.CQ
//	 PostSend   PostRecv                                         ^
//	     |          |                                            |
//	+----v----+ +---v----+   take                      complete  |
//	| send    | | receive|-----------+------------------------->-+
//	| queue   | | queue  |           |                           ^
//	+----+----+ +--------+           |                           |
//	     |   sent, or answered       |                           |
//	     +---------------------------|-------------------------->+
//	     |                           |
//	     |        responses  +-------+--------+    +-----------+
//	     |      +------------+  receive role  +<-->| key table |  place, fetch, atomics
//	     |      |            |  parse, check  |    +-----------+  in registered memory
//	+----v------v---+        +-------^--------+
//	|   send role   |                |
//	|  batch, CRC   |                |            FPDU: length | DDP | RDMAP | payload | pad | CRC
//	+-------+-------+                |
//	        | writev, never waits    | readv, never waits
//	+-------v------------------------+--------+
//	|            stream (TCP)                 |
//	+-----------------------------------------+
//
// # Roles
//
// A connection has two roles, and whoever has work to do takes them: there is no goroutine that others hand their work to.
//
//   - The send role is taken by the poster of a request, by the receive role when it owes a response, or by the goroutine
//     that waits for room. Its holder fills a batch of FPDUs and gives it to the socket with one system call. When the
//     socket is full it leaves the rest in the batch, and one goroutine per connection waits for room. Who finds the role
//     taken notes that there is more to do and goes away.
//   - The receive role is held by whoever keeps the watch over the connection (watch.go): its reader, a goroutine that sleeps in
//     CQ.Wait or CompChannel.Wait, or one that polls. Its holder parses, places, performs atomics, completes requests and queues
//     responses; then it takes the send role for them. Who keeps the watch is woken, nobody else. A program that has been away
//     while something waited for it loses the watch to the reader, so that nothing depends on the program.
//
// Invariants:
//
//  1. No holder of a role and nobody who holds a lock ever waits for the network. So two sides that send large messages to
//     each other cannot block each other, and a post never blocks.
//  2. A message that has begun is finished before another begins. Responses go before requests, at most 16 in a row.
//  3. Requests complete in the order of posting: Send, Write and Immediate Data when the socket has their last byte, Read
//     and atomics when the answer is placed. At most ORD of the latter are in progress; a fence waits for all of them.
//  4. Incoming messages are handled in the order of the stream, and responses are sent in the order of their requests. With
//     2 this keeps every row of the ordering tables of RFC 5040 section 5.5 and RFC 7306 section 7.
//  5. Nothing is placed before its CRC has been checked, and before key, domain, rights and bounds have been. Nothing is
//     allocated in proportion to what a peer claims.
//  6. Memory is touched only between entering and leaving its region, which deregistration waits for.
//
// # The end of a connection
//
// A connection ends once, for the first of these reasons: a local disconnect, the peer's FIN, a fault in what the peer
// sent (we send a Terminate), the peer's Terminate, a local error in a request, a CQ that overflows or IdleTimeout (Terminate
// too), a broken stream, a peer for which too much is held (stalls.go; the stream is cut).
//
//	       fail                 end                   drainAndClose
//	RTS ---------> ERR, dead ---------> ERR, flushed -----------------> gone
//	     nothing      |  readers leave,   |  tail of the FPDU that was     stream closed
//	     new begins   |  roles are taken  |  cut, Terminate, FIN; what
//	                  |  for good         |  arrives is dropped until
//	                  |                   |  the peer's FIN or CloseTimeout
//	               completions, event, Done
//
// A fault in what the peer sent leads to fail as soon as the answers that are owed for earlier messages are in the socket, so
// that the peer learns what has been done.
//
// From "flushed" on no memory of the user's is touched any more; what is in flight for the peer is private by then. What
// the socket has taken before arrives, because the stream is half-closed and read to its end before it is closed.
//
// Locks are taken in the order: receive role, QP, device.watching, then one of receive queue, CQ; CQ before its channel; a watch
// before a channel; a set's and a stream's below a watch's; key table, and the account of stalls, last.
package siw
