// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// Provider makes the connections of a device. It is an optional interface of a
// verbs.ProviderDevice, found by verbs.Ability. A device that wraps another one implements it, or
// leaves its connections to the inner device by a method Unwrap. For kernel devices
// (verbs.ProviderKernelDevice) this package has a Provider, based on librdmacm.
//
// The Config passed to a Provider is complete: Context is the context for the objects of the
// connections, Device is its device, and PortSpace and Backlog are not 0. A Provider returns
// verbs.ErrNotSupported for what it does not support, such as a port space or a type of service.
// QPs are the program's handles, of that Context. A handle has the QP's number and state; the
// Provider gets its own object with verbs.Own(qp.Provider()).
//
// Errors are bare causes, which the package wraps. A Provider may also return errors of this
// package: an [OpError] is replaced by its cause, so that each error names one call.
//
// A wrapping device makes its connections with this package, using the inner context and the inner
// QPs:
//
//	Resolve  cfg.Device, cfg.Context = nil, inner context; cm.Resolve gives an ID for the Route
//	Bind     ID.BindQP(inner QP), Request.BindQP(inner QP)
//	Connect  ID.Connect(ctx, inner QP, param); the ID is the ProviderConn
//	Listen   cm.Listen with the inner context, Listener.Accept,
//	         Request.Accept(ctx, inner QP, param)
//
// Package internal/forward implements exactly this.
type Provider interface {
	// Resolve finds the route to address, "host:port", without contacting the peer.
	Resolve(ctx context.Context, address string, cfg Config) (Route, error)
	// Listen accepts connections on address and queues up to cfg.Backlog requests for Accept.
	Listen(ctx context.Context, address string, cfg Config) (ProviderListener, error)
}

// Route is a route to a peer, found by Resolve.
type Route interface {
	RemoteAddr() net.Addr
	// PortNum returns the device port, from 1.
	PortNum() int
	// Bind moves a QP from RESET to INIT, with all remote rights, so that the rights of the memory
	// decide what the peer may do.
	Bind(qp *verbs.QP) error
	// Connect connects qp, which is in INIT (for datagrams also RTR or RTS). It returns when the
	// connection is established, with ctx.Err() if ctx is done first, or with a *RejectedError. It
	// is called once.
	Connect(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error)
	// Close frees what Resolve allocated. It is called once, after Connect has returned and the
	// connection, if there is one, has been closed.
	Close() error
}

// ProviderConn is an established connection. An *[ID] is one.
type ProviderConn interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// PrivateData returns the peer's private data.
	PrivateData() []byte
	// Depths returns the negotiated numbers of outstanding Reads and atomics, as requester (ORD)
	// and as responder (IRD).
	Depths() (ord, ird int)
	// PeerDepths returns the numbers that the peer sent, -1 if it sent none.
	PeerDepths() (ord, ird int)
	// Disconnect moves the QP to the error state, flushes its requests and notifies the peer. It
	// returns when the completions are in the CQs. Any remaining sending and receiving continues in
	// the background.
	Disconnect() error
	// Done is closed when the connection has ended and the QP's requests have been flushed.
	Done() <-chan struct{}
	// Err returns the reason for the end: io.EOF if the peer disconnected, ErrClosed for a local
	// disconnect.
	Err() error
	// CloseContext disconnects and waits until the connection has ended completely, for at most the
	// provider's close timeout. When ctx is done, it stops waiting for the peer, and returns
	// ctx.Err() once the connection has ended. If ctx is already done when it is called, it aborts
	// the connection: unsent data are dropped. It is called once.
	CloseContext(ctx context.Context) error
}

var _ ProviderConn = (*ID)(nil)

// ProviderListener accepts connection requests.
type ProviderListener interface {
	Addr() net.Addr
	// Accept waits for the next request. It returns ctx.Err() if ctx is done, and verbs.ErrClosed
	// after Close.
	Accept(ctx context.Context) (ProviderRequest, error)
	// Close makes pending calls of Accept return, and refuses the waiting requests.
	Close() error
}

// ProviderRequest is a peer's request to connect. Either Accept or Reject is called, once.
type ProviderRequest interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	PrivateData() []byte
	// Depths returns the peer's ORD and IRD, -1 if it sent none.
	Depths() (ord, ird int)
	// PortNum returns the device port, from 1, on which the request arrived.
	PortNum() int
	// Bind moves a QP from RESET to INIT, with all remote rights, so that the rights of the memory
	// decide what the peer may do.
	Bind(qp *verbs.QP) error
	// Accept connects qp, which is in INIT (for datagrams also RTR or RTS). It returns when the
	// connection is established.
	Accept(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error)
	Reject(privateData []byte) error
}

// ProviderDatagram is a ProviderConn to a UD QP. It is optional; an *[ID] is one.
type ProviderDatagram interface {
	// Datagram returns the address of the peer's QP, or false if it is unknown.
	Datagram() (Datagram, bool)
}

var _ ProviderDatagram = (*ID)(nil)

// ProviderMulticaster is a Route or a ProviderConn of a device with multicast. It is optional.
type ProviderMulticaster interface {
	// JoinMulticast joins a group with a UD QP, which is in INIT, RTR or RTS, and attaches the QP.
	// leave, which is called once, undoes both.
	JoinMulticast(ctx context.Context, qp *verbs.QP, group netip.Addr) (d Datagram, leave func() error, err error)
}

// ProviderAddresser is a Provider of a device that has the host's addresses, as the user-space RNIC
// does. It is optional. Other devices are matched by the network interface in their GID tables.
type ProviderAddresser interface {
	// HostAddr returns the only address of the device, or the zero Addr if it has all addresses of
	// the host. ok is false if it has none, because its network is not the host's.
	HostAddr() (at netip.Addr, ok bool)
}
