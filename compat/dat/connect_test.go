// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// padded returns private data as it is delivered.
func padded(text string) []byte {
	b := make([]byte, dat.MaxPrivateData)
	copy(b, text)
	return b
}

func TestConnect(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		psp, qual := b.listen()
		require.NoError(t, a.ep.Connect(addr, qual, patience, []byte("hello")))
		ev := wait(t, b.conn, dat.ConnectionRequestEvent).CR
		require.Same(t, psp, ev.PSP)
		require.Equal(t, qual, ev.ConnQual)
		param, err := ev.CR.Query()
		require.NoError(t, err)
		require.Equal(t, padded("hello"), param.PrivateData)
		host, _, err := net.SplitHostPort(param.RemoteAddr.String())
		require.NoError(t, err)
		require.Equal(t, addr.String(), host)

		require.Equal(t, dat.EPActiveConnectionPending, a.ep.State())
		require.ErrorIs(t, ev.CR.Accept(b.ep, make([]byte, 49)), dat.InvalidArg3, "the request is as before")
		require.ErrorIs(t, ev.CR.Accept(nil, nil), dat.InvalidHandleEP)
		require.ErrorIs(t, ev.CR.Accept(a.ep, nil), dat.InvalidHandleEP, "an EP of another IA")
		require.NoError(t, ev.CR.Accept(b.ep, []byte("welcome")))
		require.ErrorIs(t, ev.CR.Accept(b.ep, nil), dat.InvalidHandleCR)
		require.ErrorIs(t, ev.CR.Reject(nil), dat.InvalidHandleCR)

		for s, text := range map[*side]string{a: "welcome", b: "hello"} {
			up := wait(t, s.conn, dat.ConnectionEstablished).Connection
			require.Same(t, s.ep, up.EP)
			require.Equal(t, padded(text), up.PrivateData)
			require.NoError(t, up.Cause)
		}
		q, err := a.ep.Query()
		require.NoError(t, err)
		require.Equal(t, dat.EPConnected, q.State)
		require.Equal(t, net.JoinHostPort(addr.String(), portOf(qual)), q.RemoteAddr.String())

		// The peer gets a disconnect event, and both can connect again.
		require.NoError(t, b.ep.PostRecv(nil, 5, 0))
		require.NoError(t, a.ep.Disconnect(dat.CloseAbrupt))
		require.Same(t, a.ep, wait(t, a.conn, dat.ConnectionDisconnected).Connection.EP)
		require.Same(t, b.ep, wait(t, b.conn, dat.ConnectionDisconnected).Connection.EP)
		require.Equal(t, dat.DTOErrFlushed, dto(t, b.recv, 5).Status)
		require.Equal(t, dat.EPDisconnected, b.ep.State())
		require.NoError(t, a.ep.Disconnect(dat.CloseGraceful), "nothing happens")
		empty(t, a.conn)
		require.NoError(t, a.ep.Reset())
		require.NoError(t, b.ep.Reset())
		require.NoError(t, b.ep.PostRecv(b.segment(0, 8), 6, 0))
		require.NoError(t, psp.Free())
		connect(t, addr, a, b)
		require.NoError(t, a.ep.PostSend(a.segment(0, 8), 7, 0))
		require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 7).Status)
		require.Equal(t, dat.DTOSuccess, dto(t, b.recv, 6).Status)
	})
}

func portOf(qual uint64) string {
	_, port, _ := net.SplitHostPort(netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(qual)).String())
	return port
}

// A rejection delivers its private data and flushes the receives. Afterwards the EP can be reset
// and connect.
func TestReject(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		psp, qual := b.listen()
		require.NoError(t, a.ep.PostRecv(a.segment(0, 8), 1, 0))
		require.NoError(t, a.ep.Connect(addr, qual, patience, nil))
		cr := wait(t, b.conn, dat.ConnectionRequestEvent).CR.CR
		require.ErrorIs(t, cr.Reject(make([]byte, 49)), dat.InvalidArg2)
		require.NoError(t, cr.Reject([]byte("go away")))
		require.ErrorIs(t, cr.Accept(b.ep, nil), dat.InvalidHandleCR)
		ev := wait(t, a.conn, dat.ConnectionPeerRejected).Connection
		require.Same(t, a.ep, ev.EP)
		require.Equal(t, padded("go away"), ev.PrivateData)
		require.Error(t, ev.Cause)
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.recv, 1).Status)
		require.Equal(t, dat.EPDisconnected, a.ep.State())
		require.Equal(t, dat.EPUnconnected, b.ep.State())
		require.NoError(t, psp.Free())
		require.NoError(t, a.ep.Reset())
		connect(t, addr, a, b)
	})
}

// Without a listener, the rejection does not come from the peer's program.
func TestNobodyListens(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a := newSide(t, dev, addr, options{})
		psp, qual := a.listen() // a free port
		require.NoError(t, psp.Free())
		require.NoError(t, a.ep.Connect(addr, qual, patience, nil))
		require.Error(t, wait(t, a.conn, dat.ConnectionNonPeerRejected).Connection.Cause)
		require.Equal(t, dat.EPDisconnected, a.ep.State())
	})
}

// An unanswered attempt ends at its timeout, or by Disconnect.
func TestConnectEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		_, qual := b.listen()
		require.NoError(t, a.ep.Connect(addr, qual, 50*time.Millisecond, []byte("one")))
		wait(t, a.conn, dat.ConnectionTimedOut)
		require.Equal(t, dat.EPDisconnected, a.ep.State())
		require.NoError(t, a.ep.Reset())

		require.NoError(t, a.ep.Connect(addr, qual, dat.Infinite, []byte("two")))
		var cr *dat.CR
		for { // the first request may have arrived too
			cr = wait(t, b.conn, dat.ConnectionRequestEvent).CR.CR
			q, err := cr.Query()
			require.NoError(t, err)
			if bytes.Equal(q.PrivateData, padded("two")) {
				break
			}
			_ = cr.Reject(nil) // the peer is gone
		}
		require.ErrorIs(t, a.ep.Reset(), dat.InvalidStateEPActConnPending)
		require.NoError(t, a.ep.Disconnect(dat.CloseGraceful))
		wait(t, a.conn, dat.ConnectionDisconnected)
		require.Equal(t, dat.EPDisconnected, a.ep.State())
		_ = cr.Reject(nil) // the peer is gone
	})
}

// Arguments that Connect and CreatePSP refuse.
func TestConnectRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a := newSide(t, dev, addr, options{})
		ep := a.ep
		require.ErrorIs(t, ep.Connect(netip.Addr{}, 1, time.Second, nil), dat.InvalidAddressMalformed)
		require.ErrorIs(t, ep.Connect(netip.IPv4Unspecified(), 1, time.Second, nil), dat.InvalidAddressMalformed)
		require.ErrorIs(t, ep.Connect(netip.MustParseAddr("224.0.0.1"), 1, time.Second, nil),
			dat.InvalidAddressUnsupported)
		require.ErrorIs(t, ep.Connect(addr, 0, time.Second, nil), dat.InvalidArg3)
		require.ErrorIs(t, ep.Connect(addr, 65536, time.Second, nil), dat.InvalidArg3)
		require.ErrorIs(t, ep.Connect(addr, 1, 0, nil), dat.InvalidArg4)
		require.ErrorIs(t, ep.Connect(addr, 1, time.Second, make([]byte, 49)), dat.InvalidArg5)
		require.Equal(t, dat.EPUnconnected, ep.State())

		_, qual := a.listen()
		_, err := a.ia.CreatePSP(qual, a.conn, dat.PSPConsumer)
		require.ErrorIs(t, err, dat.ConnQualInUse)
		_, err = a.ia.CreatePSP(65536, a.conn, dat.PSPConsumer)
		require.ErrorIs(t, err, dat.InvalidArg2)
		_, err = a.ia.CreatePSP(0, a.recv, dat.PSPConsumer)
		require.ErrorIs(t, err, dat.InvalidHandleEVDCR)
		_, err = a.ia.CreatePSP(0, a.conn, dat.PSPProvider)
		require.ErrorIs(t, err, dat.ModelNotSupported)
		_, err = a.ia.CreatePSP(0, a.conn, 2)
		require.ErrorIs(t, err, dat.InvalidArg4)
	})
}

// A graceful disconnect lets requests complete, including suppressed ones; an abrupt one does not
// wait for them.
func TestDisconnect(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		const n = 20
		for i := range uint64(n) {
			require.NoError(t, b.ep.PostRecv(b.segment(int(i)*100, 100), i, 0))
		}
		for i := range uint64(n) {
			flags := dat.CompletionSuppress // including the last one: it has no completion
			if i == 3 {
				flags = 0
			}
			require.NoError(t, a.ep.PostSend(a.segment(0, 100), i, flags))
		}
		require.NoError(t, a.ep.Disconnect(dat.CloseGraceful))
		wait(t, a.conn, dat.ConnectionDisconnected)
		wait(t, b.conn, dat.ConnectionDisconnected)
		require.Equal(t, dat.DTOSuccess, dto(t, a.requests, 3).Status)
		empty(t, a.requests)
		for i := range uint64(n) {
			require.Equal(t, dat.DTOSuccess, dto(t, b.recv, i).Status, "message %d", i)
		}
		empty(t, b.recv)

		require.NoError(t, a.ep.Reset())
		require.NoError(t, b.ep.Reset())
		connect(t, addr, a, b)
		require.NoError(t, a.ep.PostSend(a.segment(0, 100), 1, 0)) // it has no receive
		require.NoError(t, a.ep.Disconnect(dat.CloseGraceful))
		require.Equal(t, dat.EPDisconnectPending, a.ep.State())
		require.ErrorIs(t, a.ep.PostSend(nil, 2, 0), dat.InvalidStateEPDiscPending)
		require.NoError(t, a.ep.Disconnect(dat.CloseAbrupt))
		wait(t, a.conn, dat.ConnectionDisconnected)
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.requests, 1).Status)
		require.NoError(t, a.ep.PostSend(nil, 4, 0), "it is flushed")
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.requests, 4).Status)
		require.NoError(t, a.ep.PostRecv(nil, 5, 0))
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.recv, 5).Status)
	})
}

// A failed request breaks the connection: both sides get an event, and the requests after it are
// flushed.
func TestBroken(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		to := b.remote(0, 8)
		to.RMRContext ^= 0x5555 << 8
		require.NoError(t, a.ep.PostRDMARead(a.segment(0, 8), 1, to, 0))
		require.NoError(t, a.ep.PostSend(nil, 2, 0))
		bad := dto(t, a.requests, 1)
		require.Equal(t, dat.DTOErrRemoteAccess, bad.Status)
		require.Equal(t, dat.DTORDMARead, bad.Operation)
		require.Zero(t, bad.TransferredLength)
		require.Error(t, bad.Cause)
		require.Equal(t, dat.DTOErrFlushed, dto(t, a.requests, 2).Status)
		wait(t, a.conn, dat.ConnectionBroken)
		ev, _, err := b.conn.Wait(t.Context(), patience, 1)
		require.NoError(t, err)
		require.Contains(t, []dat.EventNumber{dat.ConnectionBroken, dat.ConnectionDisconnected}, ev.Number)

		// The next connection is not affected.
		require.NoError(t, a.ep.Reset())
		require.NoError(t, b.ep.Reset())
		connect(t, addr, a, b)
		require.NoError(t, b.ep.Disconnect(dat.CloseGraceful))
		wait(t, a.conn, dat.ConnectionDisconnected)
	})
}
