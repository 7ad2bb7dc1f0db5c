// SPDX-License-Identifier: BSD-3-Clause

// Package rsocket offers net.Conn and net.Listener over RDMA. On the wire it is the protocol of rsocket(7) of librdmacm, so the
// other side may be a C program on rsockets, also one that does not know it (librspreload.so).
//
// There is no encryption and no authentication, and the peer's device writes into buffers of this process: use TLS, as over TCP.
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
// Each side has a receive buffer, a ring of two halves, that the peer's device writes, and a table of two entries (address, key,
// length), which the peer's device writes too. An entry names a part of the peer's receive buffer that is free. The data go there by
// RDMA Write, and a message of 32 bits says how many bytes they are. When the program has read half of the buffer, this half
// is published again: an entry in the table of the peer, and a message.
//
// Both rings, that to receive and that to send, are the first part of their buffers and double when they are too small (inbound.grow,
// outbound.grow). The fewer and larger the messages, the fewer system calls and wake-ups for a byte.
//
// A message takes one receive of the receiver. So that there is always one, messages with data take credits as well: a side says
// up to which number the peer may send. Numbers are counted modulo 65,536; a limit that was granted is never taken back.
//
// Two carriers bring Write and message, chosen by the transport of the own device:
//
//	InfiniBand, RoCE   one Write with immediate; the immediate is the message
//	iWARP              a Write, and behind it a Send of 4 bytes, in the byte order of the peer; iWARP places the Write first
//
// Behind the table is an area in which the peer can say what memory of its own it has mapped (Config.Mappings): an offset, an address, a
// key and a length. A message with the index of its place tells of it, and takes a credit. WriteAt finds the memory by the offset, and
// writes there without a message.
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
//	  - opening: the private data of both sides are exchanged and checked. Nothing is sent on the stream.
//	  - open: both directions carry data. The first message of each direction publishes the second half of the receive buffer.
//	  - write side closed: SHUTDOWN is behind the last data. Reads go on, and messages that grant go on.
//	  - read side ended: the peer's SHUTDOWN came. What is in the buffer can be read, then io.EOF.
//	  - a DISCONNECT of the peer ends both: it neither sends nor reads any more. This side answers with its own DISCONNECT, at
//	    once, and sends nothing after that.
//	  - disconnecting (Close): DISCONNECT is sent behind all data. What arrives is dropped, until the peer's DISCONNECT, the end of
//	    the connection, or a time limit. Then the connection below is ended, so no data of ours can be lost to a reset.
//	  - failed: the QP is in the error state without a DISCONNECT before it, or the peer has violated the protocol. What came before
//	    can still be read.
//
// # Invariants
//
//  1. Of messages with data or a mapping: consumed <= received <= granted <= consumed + RecvQueue, modulo 65,536.
//  2. Bytes in the ring to receive that are not read, plus what is published and not filled, plus what is read and not published, are
//     the whole ring. A message never crosses an entry, so the part that the peer fills next is always one run of bytes.
//  3. Receives posted or completed and not looked at are at least granted - received + reserve. The reserve is for messages
//     without credit. So a correct peer always finds a receive, however long nobody looks at the CQ: until this side sends, the peer
//     has nothing more to grant.
//  4. As sender on iWARP this side stops min(8, a quarter) short of the limit, because rsockets of C posts no reserve, and a
//     message without a receive ends an iWARP connection.
//  5. Requests in the send queue, their slots and their bytes of the ring to send are freed in the order of posting, when a
//     signalled request behind or at them completes. At most a quarter of queue and ring is unsignalled, so a writer that
//     waits for room always has a completion to come. Data leave room in the queue for two messages without data.
//  6. What a peer sends is checked before anything follows from it; a violation ends the connection with a *[ProtocolError].
//
// # Who does the work
//
// There is no goroutine for a connection. The goroutine that has to wait, in Read or in Write, takes the turn and takes completions
// from the CQ, for both directions. When it has what it waited for, it gives the turn back, and another one that waits takes it.
// While nobody waits the device goes on alone, within what has been granted. A timer (KeepAlive) looks at the CQ now and then, so the
// end of a peer is answered although nobody is inside.
//
// Locks are taken in this order: the turn to read or to write (side.lock), the turn for the CQ (Conn.turn), Conn.mu, deadline.mu.
// None is held during a wait, but for the turns. Nothing is copied under Conn.mu; the turns keep the buffers alive.
package rsocket
