// SPDX-License-Identifier: BSD-3-Clause

// Package cm makes connections: addresses are those of the IP network, and a connection carries a little private data
// of both sides when it is made. It follows librdmacm; an [ID] is one connection, a [Listener] makes IDs out of
// [Request]s.
//
// The active side:
//
//	id, err := cm.Resolve(ctx, "host:7306", cm.Config{Device: dev})
//	... make PD, CQs and a QP on id.Context() ...
//	err = id.BindQP(qp)              // receives can be posted from here on
//	err = id.Connect(ctx, qp, cm.ConnParam{})
//
// The passive side:
//
//	ln, err := cm.Listen(ctx, ":7306", cm.Config{Device: dev})
//	req, err := ln.Accept(ctx)
//	... make a QP on req.Context(), post receives ...
//	id, err := req.Accept(ctx, qp, cm.ConnParam{})
//
// A connection ends by [ID.Disconnect] or [ID.Close] of either side, or when it fails. Both sides learn of it: the QP goes
// into the error state, its requests are flushed, and [ID.Done] is closed.
//
// Requests should have completed before a side disconnects. Reads and atomics that have completed have been executed. Of
// Sends and Writes that have completed
//   - InfiniBand and RoCE have delivered all;
//   - the user-space siw delivers all if the peer takes them within the CloseTimeout of its Config, for which [ID.Close] waits;
//   - kernel siw delivers all to a peer that sends nothing; if data of the peer's are on their way, some can be lost, for then
//     the kernel resets the stream.
//
// On every device a peer has everything when its program has said so before the connection is ended.
//
// A device with a connection manager of its own, as the user-space siw, implements [Provider]. For the devices of the kernel
// this package uses librdmacm: the QPs are the program's, all IDs of the process share one event channel under the
// runtime's poller while there are any, and no call holds a thread while it waits, with one exception: kernel siw connects
// its TCP stream within rdma_connect(3), in a thread that a Connect which is given up leaves behind for as long as TCP tries.
// On iWARP devices of the kernel a QP whose connection has failed or ended cannot be used for another one; InfiniBand
// and RoCE devices reset it. With [Auto] as the device the address chooses.
//
// UD QPs have no connections. An ID of [PortSpaceUDP] finds the QP behind a port, see [ID.Datagram], and joins multicast
// groups, see [ID.JoinMulticast]. Nothing tells its peer when it is closed.
//
// States of an ID:
//
//	resolved -> connecting -> established -> disconnected -> closed
//	                  \-> failed (the ID can only be closed)
package cm
