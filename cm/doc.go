// SPDX-License-Identifier: BSD-3-Clause

// Package cm makes connections. Addresses are those of the IP network. While a connection is made,
// each side can send some private data to the other.
//
// An [Endpoint] is a connection with everything that it needs: one call dials or accepts it.
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
// Below it the package follows librdmacm: an [ID] is one connection, and a [Listener] accepts
// [Request]s.
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
// A connection ends by [ID.Disconnect] or [ID.Close] of either side, or when it fails. On both
// sides the QP then goes into the error state, its requests are flushed, and [ID.Done] is closed.
//
// Requests should have completed before a side disconnects. Reads and atomics that have completed
// have been executed. Whether completed Sends and Writes arrive at the peer depends on the device
// of the sender:
//   - InfiniBand and RoCE devices have delivered them;
//   - the user-space siw delivers them if the peer reads them within the CloseTimeout of its
//     Config, for which [ID.Close] waits;
//   - kernel siw delivers them if the peer sends nothing. If data from the peer are on their way,
//     some can be lost, because the kernel then resets the stream.
//
// To lose nothing on any device, call [Endpoint.Shutdown], or have the peer's program confirm that
// it has everything before the connection is ended.
//
// # Devices
//
// A device with a connection manager of its own, such as the user-space siw, implements [Provider];
// one that wraps another device implements it by calls of this package, or leaves it to that
// device. For devices of the kernel this package uses librdmacm. The program creates the QPs. All
// IDs of the process share one event channel, in the runtime's poller. No call keeps a thread while
// it waits, with one exception: kernel siw makes its TCP connection within rdma_connect(3).
// Meanwhile the thread gets no signals, which would end that connection. When such a Connect is
// given up, its thread waits until TCP succeeds or gives up too. On iWARP devices of the kernel a
// QP whose connection has failed or ended cannot be used for another one; on InfiniBand and RoCE
// devices it can be reset. In a Config without a device, the address chooses the device.
//
// UD QPs have no connections. An ID of [PortSpaceUDP] looks up the QP at a port, see [ID.Datagram],
// and joins multicast groups, see [ID.JoinMulticast]. Its peer is not notified when it is closed.
//
// States of an ID:
//
//	resolved -> connecting -> established -> disconnected -> closed
//	                  \-> failed (the ID can only be closed)
package cm
