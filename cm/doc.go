// SPDX-License-Identifier: BSD-3-Clause

// Package cm connects RDMA programs. Peers are addressed by IP address and port, and each side can
// send private data to the other during connection setup.
//
// An [Endpoint] is a connection together with its PD, CQ, QP and buffers. One call dials or accepts
// it:
//
//	ep, err := cm.Dial(ctx, "host:7306", cm.Config{Device: dev}, cm.EndpointConfig{})
//	err = ep.Send(ctx, []byte("hello"))
//	wc, err := ep.Recv(ctx, buf)    // buf[:wc.ByteLen] is the answer
//	err = ep.Shutdown(ctx)
//	err = ep.Close()
//
//	ln, err := cm.Listen(ctx, ":7306", cm.Config{Device: dev})
//	ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
//
// # Connections
//
// The lower layer of the package follows librdmacm: an [ID] is one connection, and a [Listener]
// accepts [Request]s.
//
// The active side:
//
//	id, err := cm.Resolve(ctx, "host:7306", cm.Config{Device: dev})
//	... make PD, CQs and a QP on id.Context() ...
//	err = id.BindQP(qp)              // from here on receives can be posted
//	err = id.Connect(ctx, qp, cm.ConnParam{})
//
// The passive side:
//
//	ln, err := cm.Listen(ctx, ":7306", cm.Config{Device: dev})
//	req, err := ln.Accept(ctx)
//	... make a QP on req.Context(), post receives ...
//	id, err := req.Accept(ctx, qp, cm.ConnParam{})
//
// A connection ends when either side calls [ID.Disconnect] or [ID.Close], or when it fails. On both
// sides the QP then enters the error state, its requests are flushed, and [ID.Done] is closed.
//
// Requests should complete before a side disconnects. A completed Read or atomic has been executed.
// Whether completed Sends and Writes reach the peer depends on the sender's device:
//   - InfiniBand and RoCE devices have delivered them.
//   - The user-space RNIC delivers them if the peer reads them within the CloseTimeout of
//     usiw.Config, for which [ID.Close] waits.
//   - Kernel siw delivers them if the peer sends nothing. If data from the peer are in flight, some
//     can be lost, because the kernel then resets the stream.
//
// To lose nothing on any device, call [Endpoint.Shutdown], or have the peer's program confirm that
// it has everything before you disconnect.
//
// # Devices
//
// A device with its own connection manager, such as the user-space RNIC, implements [Provider]. A
// device that wraps another one either implements Provider through this package or leaves
// connections to the inner device. For kernel devices this package uses librdmacm; the program
// creates the QPs. If a Config has no device, the address selects one.
//
// All IDs of a process share one event channel, which is in the runtime's poller. Waiting never
// ties up a thread, with one exception: kernel siw makes its TCP connection within rdma_connect(3).
// The thread blocks signals meanwhile, because a signal would abort the connection. If the caller
// gives up such a Connect, its thread stays blocked until TCP succeeds or fails.
//
// On iWARP kernel devices a QP whose connection failed or ended cannot be used for another one; on
// InfiniBand and RoCE devices it can be reset.
//
// UD QPs have no connections. An ID of [PortSpaceUDP] looks up the QP at a port (see [ID.Datagram])
// and joins multicast groups (see [ID.JoinMulticast]). Closing it does not notify the peer.
//
// States of an ID:
//
//	resolved -> connecting -> established -> disconnected -> closed
//	                  \-> failed (the ID can only be closed)
package cm
