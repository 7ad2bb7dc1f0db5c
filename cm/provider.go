// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// Provider makes the connections of a device. It is an optional interface of a verbs.ProviderDevice, found by verbs.Ability: a
// device that wraps another one implements it, or leaves its connections to the one below by a method Unwrap. For the devices
// of the kernel (verbs.ProviderKernelDevice) this package has one, over librdmacm.
//
// Configs that a Provider gets are complete: Context is the context for the objects of the connections, Device is its device,
// PortSpace and Backlog have values. What a provider cannot do, as a port space or a type of service, it refuses with
// verbs.ErrNotSupported. QPs come as the handles that the program has, of that Context; their number and their state are
// asked of the handle, what the provider needs of its own by verbs.Own(qp.Provider()).
//
// Errors are plain causes, which the package wraps. Errors of this package's own calls can be returned too: an [OpError] is taken
// off, so that each names one call.
//
// A device that wraps another one makes its connections by this package, with the inner context and the inner QPs:
//
//	Resolve  cfg.Device, cfg.Context = nil, inner context; cm.Resolve gives an ID for the Route
//	Bind     ID.BindQP(inner QP), Request.BindQP(inner QP)
//	Connect  ID.Connect(ctx, inner QP, param); the ID is the ProviderConn
//	Listen   cm.Listen with the inner context, Listener.Accept, Request.Accept(ctx, inner QP, param)
//
// Package internal/forward does that and no more.
type Provider interface {
	// Resolve finds the way to address, "host:port", without contacting the peer.
	Resolve(ctx context.Context, address string, cfg Config) (Route, error)
	// Listen accepts connections on address and keeps up to cfg.Backlog requests for Accept.
	Listen(ctx context.Context, address string, cfg Config) (ProviderListener, error)
}

// Route is a way to a peer that Resolve has found.
type Route interface {
	RemoteAddr() net.Addr
	// Bind moves a QP from RESET to INIT, see [InitQP].
	Bind(qp *verbs.QP) error
	// Connect connects qp, which is in the state INIT, or for datagrams above it. It returns when the connection is
	// established, ctx.Err() when ctx is done before that, or a *RejectedError. It is called once.
	Connect(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error)
	// Close gives back what Resolve has taken. It is called once, after Connect has returned and the connection, if there is
	// one, has been closed.
	Close() error
}

// ProviderConn is an established connection. An *[ID] is one.
type ProviderConn interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// PrivateData is what the peer sent.
	PrivateData() []byte
	// Depths are the agreed numbers of Reads and atomics in progress, as requester (ORD) and as responder (IRD).
	Depths() (ord, ird int)
	// PeerDepths are the numbers that the peer itself gave, -1 where it did not say.
	PeerDepths() (ord, ird int)
	// Disconnect moves the QP to the error state, flushes its requests and tells the peer. It returns when the
	// completions are in the CQs; what remains to be done on the wire goes on in the background.
	Disconnect() error
	// Done is closed when the connection has ended and the QP's requests have been flushed.
	Done() <-chan struct{}
	// Err tells why it ended: io.EOF if the peer disconnected, ErrClosed for a local disconnect.
	Err() error
	// Close disconnects and waits until nothing of the connection is left, at most the provider's close time-out.
	Close() error
}

var _ ProviderConn = (*ID)(nil)

// ProviderListener accepts connection requests.
type ProviderListener interface {
	Addr() net.Addr
	// Accept waits for the next request. It returns ctx.Err() when ctx is done and verbs.ErrClosed after Close.
	Accept(ctx context.Context) (ProviderRequest, error)
	// Close ends every Accept and refuses the requests that wait.
	Close() error
}

// ProviderRequest is a peer's wish to connect. One of Accept and Reject is called once.
type ProviderRequest interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	PrivateData() []byte
	// Depths are what the peer offers: its ORD and IRD, -1 where it did not say.
	Depths() (ord, ird int)
	// Bind moves a QP from RESET to INIT, see [InitQP].
	Bind(qp *verbs.QP) error
	// Accept connects qp, which is in the state INIT, or for datagrams above it, and returns when the connection is
	// established.
	Accept(ctx context.Context, qp *verbs.QP, param ConnParam) (ProviderConn, error)
	Reject(privateData []byte) error
}

// ProviderDatagram is a ProviderConn to a UD QP. It is optional; an *[ID] is one.
type ProviderDatagram interface {
	// Datagram is how to reach the peer's QP; false where that is not known.
	Datagram() (Datagram, bool)
}

var _ ProviderDatagram = (*ID)(nil)

// ProviderMulticaster is a Route or a ProviderConn of a device with multicast. It is optional.
type ProviderMulticaster interface {
	// JoinMulticast makes a UD QP, which is in INIT or above, a member of a group, and attaches it. leave, which is called
	// once, undoes both.
	JoinMulticast(ctx context.Context, qp *verbs.QP, group netip.Addr) (d Datagram, leave func() error, err error)
}

// InitQP moves a QP from RESET to INIT on port 1 with partition key 0, as Bind does for devices that have no other: the peer
// may do what the memory allows.
func InitQP(qp *verbs.QP) error {
	return qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: remoteAccess},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags)
}

// remoteAccess is what a connected QP lets the peer do, where the memory allows it.
const remoteAccess = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
