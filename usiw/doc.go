// SPDX-License-Identifier: BSD-3-Clause

// Package usiw is a complete iWARP RNIC in user space: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and
// RDMAP (RFC 5040) over TCP, with the atomic operations and Immediate Data of RFC 7306. It needs no
// kernel module, no privileges and no cgo, and is compatible on the wire with the Linux siw driver
// and with iWARP hardware.
//
// # Usage
//
// A program creates a NIC and uses its device like any other, through the handles of package verbs
// and the connections of package cm:
//
//	nic, err := usiw.New(usiw.Config{})
//	defer nic.Close()
//	ep, err := cm.Dial(ctx, "host:7306", cm.Config{Device: nic.Device()}, cm.EndpointConfig{})
//
// A program that chooses by name between a NIC and the kernel's devices imports this package for
// its effect only. verbs.DeviceByName then creates a NIC on first request: usiw0, or usiw0-plain,
// which lacks RFC 7306 and so has neither atomics nor Immediate Data. Importing the package creates
// no NIC. [Register] adds a NIC of another name or configuration to verbs.Devices.
//
// One NIC per process is enough. Several are useful in tests, or with different configurations:
// [Config] sets the local address, CRC and MPA revision, limits, time-outs, and the operations that
// the NIC leaves out. Every field has a default.
//
// Connections are ordinary TCP connections on the port numbers given to package cm. The peer can be
// another NIC of this package or any iWARP device. Config.Tap records the traffic (package
// usiw/capture), and Config.Network replaces TCP, for example with an in-memory network (packages
// usiw/usiwtest and goverbstest).
//
// The rest of this comment describes the implementation.
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
// A connection has two roles, send and receive. No goroutine is dedicated to either: whichever
// goroutine has work for a role takes it.
//
//   - The send role is taken by the goroutine that posts a request, by the holder of the receive
//     role when a response is due, or by the goroutine that waits for room in the socket. Its
//     holder fills a batch of FPDUs and passes it to the socket in one system call. If the socket
//     is full, the holder leaves the rest in the batch, and one goroutine per connection waits for
//     room. A goroutine that finds the role taken records that there is more to send, and returns.
//   - The receive role is taken by the goroutine that keeps the watch over the connection
//     (watch.go): the watch's reader, a goroutine asleep in CQ.Wait or CompChannel.Wait, or a
//     goroutine that polls. Its holder parses, places, performs atomics, completes requests and
//     queues responses; then it takes the send role to send the responses. Arriving data wake only
//     the goroutine that keeps the watch. If the program is busy elsewhere while the peer's
//     requests wait, the reader takes over the watch, so the peer never depends on the program.
//
// Invariants:
//
//  1. A goroutine that holds a role or a lock never waits for the network. Two sides that send
//     each other large messages therefore cannot deadlock, and a post never blocks.
//  2. A message is finished before the next one begins. Responses precede requests, at most 16 in
//     a row.
//  3. Requests complete in posting order: Send, Write and Immediate Data once the socket has
//     accepted their last byte, Reads and atomics once the answer is placed. At most ORD Reads and
//     atomics are in progress; a fence waits for all of them.
//  4. Incoming messages are handled in stream order, and responses are sent in the order of their
//     requests. Together with 2 this satisfies every row of the ordering tables in RFC 5040
//     section 5.5 and RFC 7306 section 7.
//  5. Nothing is placed before its CRC, key, domain, rights and bounds have been checked. No
//     number that a peer sends determines the size of an allocation.
//  6. Memory is accessed only between entering and leaving its region. Deregistration waits until
//     the region has been left.
//
// # Connection shutdown
//
// A connection ends once, for whichever of these comes first: a local disconnect, the peer's FIN,
// an error in what the peer sent (we send a Terminate), a Terminate from the peer, a local error in
// a request, a CQ overflow or IdleTimeout (also with a Terminate), a broken stream, or too much
// memory held for the peer (stalls.go; the stream is cut).
//
//	       fail                 end                   drainAndClose
//	RTS ---------> ERR, dead ---------> ERR, flushed -----------------> gone
//	     nothing      |  readers leave,   |  rest of a partly sent FPDU,   stream closed
//	     new begins   |  both roles are   |  Terminate, FIN; received
//	                  |  kept             |  bytes are dropped until the
//	                  |                   |  peer's FIN or CloseTimeout
//	               completions, event, Done
//
// After an error in a message from the peer, fail is called only once the answers to earlier
// messages are in the socket, so that the peer learns which of its requests were performed.
//
// From "flushed" on, the program's memory is no longer accessed: data still to be sent were copied.
// Data that the socket accepted earlier still arrive, because the stream is half-closed and read to
// its end before it is closed.
//
// Lock order: receive role, QP, device.watching, then either a receive queue or a CQ; a CQ before
// its channel; a watch before a channel; locks of a set or a stream after a watch's; those of the
// key table and of the stall account last.
package usiw
