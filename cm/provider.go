// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// Provider makes connections for the QPs of a device. A verbs.ProviderDevice that implements it can be used with this
// package. Its errors are plain causes; the package wraps them.
type Provider interface {
	// Resolve turns an address into the endpoints of a connection to it, without contacting the peer.
	Resolve(ctx context.Context, address string, source netip.AddrPort) (remote net.Addr, err error)
	// Connect connects qp, which is in the state INIT, to what Resolve returned. It returns when the connection is
	// established, ctx.Err() when ctx is done before that, or a *RejectedError.
	Connect(ctx context.Context, qp verbs.ProviderQP, remote net.Addr, source netip.AddrPort, param ConnParam) (ProviderConn, error)
	// Listen accepts connections on address and keeps up to backlog requests for Accept.
	Listen(ctx context.Context, address string, backlog int) (ProviderListener, error)
}

// ProviderConn is an established connection.
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
	// Accept connects qp, which is in the state INIT, and returns when the connection is established.
	Accept(ctx context.Context, qp verbs.ProviderQP, param ConnParam) (ProviderConn, error)
	Reject(privateData []byte) error
}
