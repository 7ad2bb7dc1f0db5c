// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// rfc7306 are the operations that RFC 7306 adds, and invalidation. A NIC without them is a plain
// iWARP RNIC.
var rfc7306 = verbs.MakeOpSet(verbs.OpWriteImm, verbs.OpImm64, verbs.OpFetchAdd, verbs.OpCmpSwap,
	verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpSendInv, verbs.OpLocalInv, verbs.OpBindMW)

// newNIC creates a NIC that is closed, and must shut down in order, when the test ends.
func newNIC(t *testing.T, cfg usiw.Config) *usiw.NIC {
	t.Helper()
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic
}

// TestVerbs runs the conformance suite on NICs with every configuration that changes the bytes on
// the wire.
func TestVerbs(t *testing.T) {
	for _, c := range []struct {
		name        string
		cfg         usiw.Config
		two         bool   // the sides are two NICs
		listen      string //
		activeFirst bool
	}{
		{name: "Defaults", two: true},
		{name: "NoCRC", cfg: usiw.Config{CRC: usiw.Off}},
		{name: "Rev1", cfg: usiw.Config{Rev: 1, RTR: usiw.Off, CRC: usiw.On, HoldTimeout: time.Hour},
			activeFirst: true},
		{name: "SmallMTU", cfg: usiw.Config{MTU: 256}},
		{name: "Plain", cfg: usiw.Config{Without: rfc7306, RTR: usiw.Off, CRC: usiw.On, HoldTimeout: time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			verbstest.Run(t, func(t *testing.T) verbstest.Fabric {
				active := newNIC(t, c.cfg)
				passive := active
				if c.two {
					passive = newNIC(t, c.cfg)
				}
				return verbstest.Fabric{Active: active.Device(), Passive: passive.Device(), Listen: "127.0.0.1:0",
					ActiveFirst: c.activeFirst}
			})
		})
	}
}

// TestVerbsIPv6 runs the subjects that depend on addresses over IPv6, in a new network namespace if
// the host's network has no ::1.
func TestVerbsIPv6(t *testing.T) {
	const listen = "[::1]:0"
	ln, err := net.Listen("tcp6", listen)
	if err != nil {
		rdmatest.AgainWithIPv6(t, err)
		return
	}
	require.NoError(t, ln.Close())
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		return verbstest.Fabric{Active: newNIC(t, usiw.Config{}).Device(), Passive: newNIC(t, usiw.Config{}).Device(),
			Listen: listen}
	}, "Connect", "Disconnect", "Depth", "List")
}

// TestVerbsMarkers runs the subjects that move data, with markers in both directions.
func TestVerbsMarkers(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		cfg := usiw.Config{Markers: usiw.On}
		return verbstest.Fabric{Active: newNIC(t, cfg).Device(), Passive: newNIC(t, cfg).Device(),
			Listen: "127.0.0.1:0"}
	}, "Send", "Write", "Read", "Atomic", "Order")
}

// TestVerbsAnyConn runs over streams that the NIC cannot use as TCP sockets, as on systems other
// than Linux.
func TestVerbsAnyConn(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		nic := newNIC(t, usiw.Config{Network: wrappedTCP{}})
		return verbstest.Fabric{Active: nic.Device(), Passive: nic.Device(), Listen: "127.0.0.1:0"}
	}, "Send", "Read", "Order", "QP", "Lifetime", "Disconnect")
}

// wrappedTCP is the host's TCP, with wrapped types.
type wrappedTCP struct{ dialer net.Dialer }

type wrappedConn struct{ net.Conn }

// CloseWrite ends the sending direction, which a stream must support.
func (c wrappedConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

type wrappedListener struct{ net.Listener }

func (l wrappedListener) Accept() (net.Conn, error) { return wrap(l.Listener.Accept()) }

func wrap(nc net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return wrappedConn{nc}, nil
}

func (w wrappedTCP) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return wrap(w.dialer.DialContext(ctx, network, address))
}

func (w wrappedTCP) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return wrappedListener{ln}, nil
}
