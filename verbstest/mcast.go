// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"net"
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var mcastTests = []test{
	{"Attach", mcastAttach},
	{"WrongType", mcastWrongType},
	{"Closed", mcastClosed},
}

// group is a multicast GID; over RoCE v2 it represents an IPv4 group.
var group = verbs.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))

// groupQPN is the QP number of every multicast group.
const groupQPN = 0xffffff

// noMulticast reports whether the device lacks multicast, and requires that it then refuses it.
func (w *world) noMulticast() bool {
	w.Helper()
	if !w.iwarp() || w.kernelIWARP() {
		return w.noHand(verbs.QPTypeUD) // without datagrams there is no multicast
	}
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	w.lacking("multicast", s.qp.AttachMcast(group, 0))
	w.lacking("multicast", s.qp.DetachMcast(group, 0))
	return true
}

func mcastAttach(w *world) outcome {
	if w.noMulticast() {
		return noted
	}
	p, _ := w.ud()
	require.NoError(w, p.b.qp.AttachMcast(group, 0))
	require.NoError(w, p.b.qp.DetachMcast(group, 0))
	require.ErrorIs(w, p.b.qp.DetachMcast(group, 0), verbs.ErrInvalid, "it is not attached")
	if !p.onLink(group) {
		w.without("group traffic")
		return tested
	}
	ah := p.a.createAH(verbs.AHAttr{IsGlobal: true, PortNum: 1,
		GRH: verbs.GlobalRoute{DGID: group, SGIDIndex: uint8(p.a.gid().Index), HopLimit: 1}})
	toGroup := p.datagram(ah, 0, 64)
	toGroup.UD.RemoteQPN = groupQPN
	members := []*side{p.b, w.b.side(pairConfig{typ: verbs.QPTypeUD}, nil, [2]*verbs.CompChannel{})}
	members[1].handTo(p.a, verbs.QPStateRTS)
	for i := range 3 {
		g := group
		g[15] += byte(i)
		for _, s := range members {
			require.NoError(w, s.qp.AttachMcast(g, 0))
		}
	}
	// Each member of the group gets the datagram.
	p.a.mem.fill(7)
	for _, s := range members {
		s.recv(5, s.mem.sge(1024, grhLen+64))
	}
	p.a.ok(p.a.run(toGroup), verbs.WCSend)
	for _, s := range members {
		wc := s.ok(s.received(), verbs.WCRecv)
		require.EqualValues(w, 5, wc.ID)
		require.EqualValues(w, grhLen+64, wc.ByteLen)
		require.Equal(w, p.a.qp.Num(), wc.SrcQP)
		s.mem.holds(1024+grhLen, p.a.mem.Bytes()[:64])
	}
	// A QP that left the group gets none, and is still a member of its other groups.
	require.NoError(w, members[1].qp.DetachMcast(group, 0))
	for _, s := range members {
		s.recv(6, s.mem.sge(1024, grhLen+64))
	}
	p.a.ok(p.a.run(toGroup), verbs.WCSend)
	require.EqualValues(w, 6, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	p.b.idle(members[1].rcq)
	direct := &pair{world: w, a: p.a, b: members[1]}
	wr := direct.datagram(p.a.createAH(p.a.path(members[1])), 0, 32)
	p.a.ok(p.a.run(wr), verbs.WCSend)
	wc := members[1].ok(members[1].received(), verbs.WCRecv)
	require.EqualValues(w, 6, wc.ID)
	require.EqualValues(w, grhLen+32, wc.ByteLen, "what was sent to it alone")
	return tested
}

// onLink makes the host of the passive side join a group until the test ends. Over RoCE v2 the
// device receives only groups that the host has joined, which AttachMcast does not do (a connection
// manager does). onLink reports false on other links and for addresses other than IPv4.
func (p *pair) onLink(group verbs.GID) bool {
	p.Helper()
	row := p.b.gid()
	if !p.roce() || row.Type != verbs.GIDTypeRoCEv2 || !row.GID.Addr().Is4() {
		return false
	}
	ifi, err := net.InterfaceByName(row.NetDev)
	require.NoError(p, err)
	member, err := net.ListenMulticastUDP("udp4", ifi, &net.UDPAddr{IP: group.Addr().AsSlice()})
	require.NoError(p, err)
	p.Cleanup(func() { require.NoError(p, member.Close()) })
	return true
}

func mcastWrongType(w *world) outcome {
	if w.noMulticast() {
		return noted
	}
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	err := s.qp.AttachMcast(group, 0)
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "UD")
	requireErr(w.T, s.qp.DetachMcast(group, 0), verbs.ErrInvalid)
	return tested
}

func mcastClosed(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.NoError(w, s.qp.Close())
	requireClosed(w.T, s.qp.AttachMcast(group, 0))
	requireClosed(w.T, s.qp.DetachMcast(group, 0))
	return tested
}
