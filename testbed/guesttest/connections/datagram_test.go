// SPDX-License-Identifier: BSD-3-Clause

package connections

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// grh is the size of the header before each datagram in its receive.
const grh = 40

// tell sends text to d.
func (h *half) tell(d cm.Datagram, text string) {
	h.Helper()
	ah, err := h.pd.CreateAH(d.AH)
	require.NoError(h, err)
	defer func() { require.NoError(h, ah.Close()) }()
	n := copy(h.mr.Bytes(), text)
	_, err = h.qp.PostSend([]verbs.SendWR{{ID: 9, Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{{Addr: h.mr.Addr(), Length: uint32(n), LKey: h.mr.LKey()}},
		UD:  &verbs.UDDest{AH: ah, RemoteQPN: d.QPN, RemoteQKey: d.QKey}}})
	require.NoError(h, err)
	require.Equal(h, verbs.WCSuccess, h.next().Status)
}

// TestDatagrams finds a UD QP by its port and sends to it.
func TestDatagrams(t *testing.T) {
	dev := device(t, "rxe0")
	for _, ip := range []string{"10.78.0.1", "fd00:78::1"} {
		cfg := cm.Config{Device: dev, PortSpace: cm.PortSpaceUDP, TOS: 32}
		ln, err := cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, id.Close()) }()
		a, b := newHalf(t, id.Context(), verbs.QPTypeUD), newHalf(t, id.Context(), verbs.QPTypeUD)
		accepted := b.accept(ln, 5, "this way")
		require.NoError(t, id.Connect(soon(t), a.qp, cm.ConnParam{PrivateData: []byte("which way?")}))
		require.NoError(t, <-accepted)
		defer func() { require.NoError(t, b.id.Close()) }()
		require.Equal(t, "this way", string(id.PrivateData()[:8]))
		require.Equal(t, "which way?", string(b.id.PrivateData()[:10]))
		d, ok := id.Datagram()
		require.True(t, ok)
		require.Equal(t, b.qp.Num(), d.QPN)
		a.tell(d, "a datagram")
		wc := b.next()
		require.EqualValues(t, 5, wc.ID)
		require.Equal(t, "a datagram", string(b.mr.Bytes()[grh:grh+10]))

		// A rejection with private data.
		again, err := cm.Resolve(soon(t), ln.Addr().String(), cfg)
		require.NoError(t, err)
		defer func() { require.NoError(t, again.Close()) }()
		go func() {
			req, err := ln.Accept(soon(t))
			if err == nil {
				err = req.Reject([]byte("no way"))
			}
			accepted <- err
		}()
		err = again.Connect(soon(t), a.qp, cm.ConnParam{})
		require.NoError(t, <-accepted)
		var re *cm.RejectedError
		require.ErrorAs(t, err, &re)
	}
}

// TestMulticast: two members of a group receive what one of them sends. A QP that has left the
// group receives nothing.
func TestMulticast(t *testing.T) {
	dev := device(t, "rxe0")
	group := netip.MustParseAddr("239.78.1.2")
	join := func() (*cm.ID, *half, *cm.Multicast) {
		id, err := cm.Resolve(soon(t), netip.AddrPortFrom(group, 7306).String(),
			cm.Config{Device: dev, PortSpace: cm.PortSpaceUDP, Source: netip.MustParseAddrPort("10.78.0.1:0")})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, id.Close()) })
		h := newHalf(t, id.Context(), verbs.QPTypeUD)
		m, err := id.JoinMulticast(soon(t), h.qp, group)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Leave()) })
		return id, h, m
	}
	_, a, ma := join()
	idB, b, mb := join()
	require.EqualValues(t, cm.MulticastQPN, mb.QPN)
	a.recv(1)
	b.recv(2)
	b.recv(3)
	a.tell(ma.Datagram, "to all")
	require.EqualValues(t, 2, b.next().ID)
	require.Equal(t, "to all", string(b.mr.Bytes()[grh:grh+6]))
	require.NoError(t, mb.Leave())
	_, err := idB.JoinMulticast(soon(t), b.qp, netip.MustParseAddr("10.78.0.1"))
	require.ErrorIs(t, err, verbs.ErrInvalid)

	siw0 := device(t, "siw0")
	_, err = cm.Resolve(soon(t), "10.77.0.1:7306", cm.Config{Device: siw0, PortSpace: cm.PortSpaceUDP})
	require.ErrorIs(t, err, verbs.ErrNotSupported, "iWARP has no datagrams")
}
