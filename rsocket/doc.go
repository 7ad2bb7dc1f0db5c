// SPDX-License-Identifier: BSD-3-Clause

// Package rsocket offers net.Conn and net.Listener over RDMA. It speaks the protocol of rsocket(7)
// of librdmacm. So the other side may be a C program that uses rsockets, or one that uses sockets
// and runs with librspreload.so.
//
// There is no encryption and no authentication, and the peer's device writes into buffers of this
// process: use TLS, as over TCP.
//
//	ln, err := (&rsocket.ListenConfig{Config: rsocket.Config{Device: dev}}).Listen(ctx, "tcp", ":7471")
//	err = http.Serve(ln, handler)
//
//	d := &rsocket.Dialer{Config: rsocket.Config{Device: dev}}
//	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
//
// The rest of this comment is about how it works.
//
// # The stream
//
// Each side has a receive buffer, which is a ring of two halves, and a table of two entries
// (address, key, length). The peer's device writes both. An entry names a free part of the peer's
// receive buffer. The data go there by RDMA Write, and a message of 32 bits says how many bytes
// they are. When the program has read half of the buffer, this half is published again: by an entry
// in the table of the peer, and a message.
//
// The ring to receive and the ring to send are the first parts of their buffers. A ring doubles
// when it is too small (inbound.grow, outbound.grow), because larger and fewer messages need fewer
// system calls and wake-ups for each byte.
//
// A message takes one receive of the receiver. So that there is always one, a message with data
// also takes a credit: messages are numbered, and each side tells the other the number up to which
// it may send. Numbers are counted modulo 65,536; a limit that was granted is never taken back.
//
// The transport of the own device decides how Write and message travel:
//
//	InfiniBand, RoCE   one Write with immediate; the immediate is the message
//	iWARP              a Write, then a Send of 4 bytes in the byte order of the peer; iWARP places the Write first
//
// Behind the table is an area in which the peer writes which memory of its own it has mapped
// (Config.Mappings): an offset, an address, a key and a length. It announces that by a message with
// the index of the place, which takes a credit. WriteAt finds the memory by the offset, and writes
// there without a message.
//
// # States
//
//		          Dial, Accept                    CloseWrite              peer's SHUTDOWN
//		opening --------------> open ------> write side closed ---+
//		   |                     |  \                              \
//		   |                     |   +-----> read side ended -------+---> both ended
//		   |                     |
//		   |                     +--- Close: disconnecting ---> closed
//		   +--> failed <---------+
//
//	  - opening: the private data of both sides are exchanged and checked. Nothing is sent on the
//	    stream.
//	  - open: both directions carry data. The first message of each direction publishes the second
//	    half of the receive buffer.
//	  - write side closed: SHUTDOWN is behind the last data. Reads go on, and messages that grant go
//	    on.
//	  - read side ended: the peer's SHUTDOWN came. What is in the buffer can be read, then io.EOF.
//	  - a DISCONNECT of the peer ends both: it neither sends nor reads any more. This side answers
//	    with its own DISCONNECT, at once, and sends nothing after that.
//	  - disconnecting (Close): DISCONNECT is sent behind all data. What arrives is dropped, until
//	    the peer's DISCONNECT, the end of the connection, or a time limit. Only then is the
//	    connection below ended, so a reset cannot destroy data that this side sent.
//	  - failed: the QP is in the error state without a DISCONNECT before it, or the peer has
//	    violated the protocol. What came before can still be read.
//
// # Invariants
//
//  1. For messages with data or a mapping: consumed <= received <= granted <= consumed + RecvQueue,
//     modulo 65,536.
//  2. Every byte of the ring to receive is unread, or published and not filled, or read and not
//     published again. A message never crosses an entry, so the part that the peer fills next is
//     always one run of bytes.
//  3. The number of receives that are posted, or completed and not looked at, is at least granted -
//     received + reserve. The reserve is for messages without credit. So a correct peer always
//     finds a receive, even if no goroutine looks at the CQ for a long time: until this side sends,
//     the peer has nothing more to grant.
//  4. As sender on iWARP this side stops min(8, a quarter) short of the limit, because rsockets of
//     C posts no reserve, and a message without a receive ends an iWARP connection.
//  5. Requests in the send queue, their slots and their bytes of the ring to send are freed in the
//     order of posting, when they or a later request complete with a signal. At most a quarter of
//     queue and ring is unsignalled, so a completion always comes for a writer that waits for room.
//     Data leave room in the queue for two messages without data.
//  6. What a peer sends is checked before anything follows from it; a violation ends the connection
//     with a *[ProtocolError].
//
// # Who does the work
//
// A connection has no goroutine of its own. A goroutine that has to wait in Read or in Write takes
// the turn, and then takes completions from the CQ for both directions. When it has what it waited
// for, it gives the turn back, and another goroutine that waits takes it. While no goroutine waits,
// the device goes on alone, within what has been granted. A timer (KeepAlive) looks at the CQ now
// and then, so the end of a peer is answered although the program calls neither Read nor Write.
//
// Locks are taken in this order: the turn to read or to write (side.lock), the turn for the CQ
// (Conn.turn), Conn.mu, deadline.mu. Only the turns are held during a wait. Nothing is copied under
// Conn.mu; the turns keep the buffers alive.
package rsocket
