// SPDX-License-Identifier: BSD-3-Clause

// Package rsocket implements net.Conn and net.Listener over RDMA. It speaks the protocol of
// librdmacm's rsocket(7), so the peer may be a C program that uses rsockets, or one that uses
// sockets and runs with librspreload.so.
//
// Connections are neither encrypted nor authenticated, and the peer's device writes into buffers of
// this process. Use TLS, as over TCP.
//
//	lc := &rsocket.ListenConfig{Config: rsocket.Config{Device: dev}}
//	ln, err := lc.Listen(ctx, "tcp", ":7471")
//	err = http.Serve(ln, handler)
//
//	d := &rsocket.Dialer{Config: rsocket.Config{Device: dev}}
//	client := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
//
// The rest of this comment describes the implementation.
//
// # The stream
//
// Each side has a receive buffer, which is a ring of two halves, and a table of two entries
// (address, key, length). The peer's device writes to both. An entry describes a free part of the
// receive buffer of the side that wrote it. Data is written there by RDMA Write, and a 32-bit
// message carries its length. When the program has read half of its buffer, that half is published
// again: an entry is written to the peer's table, followed by a message.
//
// The receive ring and the send ring are the first parts of their buffers. A ring doubles when it
// is too small (inbound.grow, outbound.grow), because fewer and larger messages need fewer system
// calls and wake-ups per byte.
//
// Each message consumes a receive on the receiving side. To ensure that one is always posted, a
// message with data also consumes a credit: messages are numbered, and each side tells the other
// the number up to which it may send. Numbers are counted modulo 65,536; a granted limit is never
// withdrawn.
//
// The transport of the local device determines how the Write and the message are sent:
//
//	InfiniBand, RoCE   one Write with immediate; the immediate is the message
//	iWARP              a Write, then a Send of 4 bytes in the byte order of the peer;
//	                   iWARP places the Write first
//
// The table is followed by an area in which the peer describes the memory it has mapped on its side
// (Config.Mappings): an offset, an address, a key and a length. It announces each mapping with a
// message that contains the index and consumes a credit. WriteAt looks up the memory by its offset
// and writes there without sending a message.
//
// # States
//
//	          Dial, Accept                    CloseWrite              peer's SHUTDOWN
//	opening --------------> open ------> write side closed ---+
//	   |                     |  \                              \
//	   |                     |   +-----> read side ended -------+---> both ended
//	   |                     |
//	   |                     +--- Close: disconnecting ---> closed
//	   +--> failed <---------+
//
// In each state:
//
//   - opening: both sides exchange and check private data. Nothing is sent on the stream.
//   - open: both directions carry data. The first message in each direction publishes the second
//     half of the receive buffer.
//   - write side closed: SHUTDOWN follows the last data. Reads continue, and so do messages that
//     grant credits.
//   - read side ended: the peer's SHUTDOWN arrived. Buffered data can be read, then io.EOF.
//   - A DISCONNECT from the peer ends both directions: it no longer sends or reads. This side
//     immediately answers with its own DISCONNECT and sends nothing after that.
//   - disconnecting (Close): DISCONNECT is sent after all data. Whatever arrives is dropped until
//     the peer's DISCONNECT arrives, the connection ends, or a timeout expires. Only then is the
//     underlying connection closed, so a reset cannot destroy data that this side sent.
//   - failed: the QP entered the error state without a preceding DISCONNECT, or the peer violated
//     the protocol. Data that arrived before can still be read.
//
// # Invariants
//
//  1. For messages with data or a mapping: consumed <= received <= granted <= consumed + RecvQueue,
//     modulo 65,536.
//  2. Every byte of the receive ring is unread, or published and not filled, or read and not
//     published again. A message never crosses an entry, so the part that the peer fills next is
//     always contiguous.
//  3. The number of receives that are posted, or completed and not yet processed, is at least
//     granted - received + reserve. The reserve is for messages without credit. A correct peer
//     therefore always finds a receive, even if no goroutine polls the CQ for a long time: until
//     this side sends, the peer has nothing more to grant.
//  4. As a sender on iWARP, this side stops min(8, a quarter) short of the limit, because C
//     rsockets post no reserve, and a message without a receive terminates an iWARP connection.
//  5. Requests in the send queue, their slots and their bytes in the send ring are freed in posting
//     order, when they or a later request complete with a signal. At most a quarter of the queue
//     and the ring is unsignalled, so a writer that waits for room always gets a completion. Data
//     leaves room in the queue for two messages without data.
//  6. Everything a peer sends is checked before it is used; a violation terminates the connection
//     with a *[ProtocolError].
//
// # Which goroutine does the work
//
// A connection has no goroutine of its own. A goroutine that must wait in Read or Write acquires
// the turn, then polls the CQ for both directions. Once its own condition is met, it releases the
// turn, and another waiting goroutine acquires it. While no goroutine waits, the device proceeds on
// its own within what has been granted. A timer (KeepAlive) polls the CQ occasionally, so that a
// peer's close is answered even if the program calls neither Read nor Write.
//
// Locks are acquired in this order: the turn to read or to write (side.lock), the turn for the CQ
// (Conn.turn), Conn.mu, deadline.mu. Only the turns are held while waiting. Nothing is copied under
// Conn.mu; the turns keep the buffers alive.
package rsocket
