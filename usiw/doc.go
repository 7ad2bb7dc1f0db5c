// SPDX-License-Identifier: BSD-3-Clause

// Package usiw is a complete iWARP RNIC in user space: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and
// RDMAP (RFC 5040) over TCP, with the atomic operations and Immediate Data of RFC 7306. It needs no
// kernel module, no privileges and no cgo, and speaks the wire protocol of Linux's siw driver and
// of iWARP hardware.
//
// # Use
//
// A program makes a NIC and uses its device as any other, by the handles of package verbs and the
// connections of package cm:
//
//	nic, err := usiw.New(usiw.Config{})
//	defer nic.Close()
//	ep, err := cm.Dial(ctx, "host:7306", cm.Config{Device: nic.Device()}, cm.EndpointConfig{})
//
// A program that chooses between a NIC and the devices of the kernel by name imports this package
// for its effect only. verbs.DeviceByName then makes a NIC when it is first asked for one: usiw0,
// or usiw0-plain, which lacks RFC 7306 and so has neither atomics nor immediate data. Importing the
// package makes no NIC. [Register] adds a NIC of another name or configuration to verbs.Devices.
//
// One NIC is enough for a process. Several are of use in tests, or with different configurations:
// [Config] has the local address, CRC and MPA revision, limits, time-outs, and the operations that
// the NIC does not have. Every field has a default.
//
// Connections are ordinary TCP connections from and to the ports of package cm. The peer can be
// another NIC of this package, or any iWARP device. Config.Tap records what is sent and received
// (package usiw/capture), and Config.Network replaces TCP, for example by a network in memory
// (packages usiw/usiwtest and goverbstest).
//
// The rest of this comment is about how it works.
//
// # Structure
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
// A connection has two roles. The goroutine that has work to do takes the role for it; no goroutine
// does all the work.
//
//   - The send role is taken by the poster of a request, by the holder of the receive role when a
//     response is due, or by the goroutine that waits for room in the socket. Its holder fills a
//     batch of FPDUs and gives it to the socket with one system call. When the socket is full, the
//     holder leaves the rest in the batch, and one goroutine per connection waits for room. A
//     goroutine that finds the role taken notes that there is more to send, and returns.
//   - The receive role is taken by the goroutine that keeps the watch over the connection
//     (watch.go): the watch's reader, a goroutine asleep in CQ.Wait or CompChannel.Wait, or a
//     goroutine that polls. Its holder parses, places, performs atomics, completes requests and
//     queues responses; then it takes the send role for the responses. Only the goroutine that
//     keeps the watch is woken. If the program does other things while requests of the peer wait
//     for it, the reader takes over the watch, so the peer does not depend on the program.
//
// Invariants:
//
//  1. A goroutine that holds a role or a lock never waits for the network. So two sides that send
//     large messages to each other cannot block each other, and a post never blocks.
//  2. A message that has begun is finished before another begins. Responses go before requests, at
//     most 16 in a row.
//  3. Requests complete in the order of posting: Send, Write and Immediate Data when the socket has
//     their last byte, Reads and atomics when the answer is placed. At most ORD Reads and atomics
//     are in progress; a fence waits for all of them.
//  4. Incoming messages are handled in the order of the stream, and responses are sent in the order
//     of their requests. Together with 2 this keeps every row of the ordering tables of RFC 5040
//     section 5.5 and RFC 7306 section 7.
//  5. Nothing is placed before its CRC, key, domain, rights and bounds have been checked. The size
//     of an allocation never follows from a number that a peer sends.
//  6. Memory is touched only after its region has been entered and before it is left.
//     Deregistration waits for that.
//
// # The end of a connection
//
// A connection ends once, for the first of these reasons: a local disconnect, the peer's FIN, a
// fault in what the peer sent (we send a Terminate), the peer's Terminate, a local error in a
// request, a CQ that overflows or IdleTimeout (Terminate too), a broken stream, too much memory
// held for the peer (stalls.go; the stream is cut).
//
//	       fail                 end                   drainAndClose
//	RTS ---------> ERR, dead ---------> ERR, flushed -----------------> gone
//	     nothing      |  readers leave,   |  rest of a partly sent FPDU,   stream closed
//	     new begins   |  both roles are   |  Terminate, FIN; received
//	                  |  kept             |  bytes are dropped until the
//	                  |                   |  peer's FIN or CloseTimeout
//	               completions, event, Done
//
// After a fault in a message from the peer, fail is called when the answers to earlier messages are
// in the socket, so that the peer learns which of its requests have been done.
//
// From "flushed" on, the program's memory is not touched any more: data that are still to be sent
// have been copied. Data that the socket took before still arrive, because the stream is
// half-closed and read to its end before it is closed.
//
// Locks are taken in this order: receive role, QP, device.watching, then one of receive queue, CQ;
// CQ before its channel; a watch before a channel; locks of a set or a stream after a watch's; the
// key table's and the account of stalls' last.
package usiw
