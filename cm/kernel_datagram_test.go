// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDatagrams: a UD QP receives the address of its peer.
func TestDatagrams(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	id, qp, other := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}), b.qp(verbs.QPTypeUD), b.qp(verbs.QPTypeUD)
	_, ok := id.Datagram()
	require.False(t, ok)
	accepted := make(chan *cm.ID, 1)
	go func() {
		req, err := b.ln.Accept(soon(t))
		if err != nil {
			accepted <- nil
			return
		}
		passive, _ := req.Accept(soon(t), other, cm.ConnParam{PrivateData: []byte("here")})
		accepted <- passive
	}()
	require.NoError(t, id.Connect(soon(t), qp, cm.ConnParam{}))
	passive := <-accepted
	require.NotNil(t, passive)
	d, ok := id.Datagram()
	require.True(t, ok)
	require.Equal(t, other.Num(), d.QPN)
	require.EqualValues(t, 0x01234567, d.QKey, "RDMA_UDP_QKEY")
	require.Equal(t, "here", string(id.PrivateData()[:4]))
	require.Len(t, id.PrivateData(), 136)
	require.Equal(t, verbs.QPStateRTS, qp.State())
	require.Equal(t, verbs.QPStateRTS, other.State())
	_, ok = passive.Datagram()
	require.False(t, ok, "a request does not tell")
	require.NoError(t, passive.Close())
	require.NoError(t, id.Disconnect())
	wait(t, id.Done(), "Done")
	require.Equal(t, verbs.QPStateRTS, qp.State(), "it may have other correspondents")

	// The same QP again, and a refusal.
	id = b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	fakeverbs.CMNext("rdma_connect",
		fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: 2, PrivateData: []byte("no")})
	err := id.Connect(soon(t), qp, cm.ConnParam{})
	require.ErrorIs(t, err, cm.ErrRejected)
	id = b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: 1})
	err = id.Connect(soon(t), qp, cm.ConnParam{})
	require.NotErrorIs(t, err, cm.ErrRejected)
	require.ErrorContains(t, err, "service ID not supported (1)")
	require.ErrorIs(t, b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}).Connect(soon(t), b.qp(0), cm.ConnParam{}),
		verbs.ErrInvalid)
}

// TestDatagramsOfOneQP: one UD QP serves several IDs, on either side and at once. None of them has
// depths.
func TestDatagramsOfOneQP(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	cfg := cm.Config{PortSpace: cm.PortSpaceUDP}
	qp, other := b.qp(verbs.QPTypeUD), b.qp(verbs.QPTypeUD)
	fakeverbs.CMNext("rdma_connect", silence)
	slow := b.resolve(cfg)
	called := b.untilCalled("rdma_connect")
	ended := make(chan error, 1)
	go func() { ended <- slow.Connect(t.Context(), qp, cm.ConnParam{}) }()
	wait(t, called.Done(), "the call")
	for range 2 {
		id := b.resolve(cfg)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{InitiatorDepth: 2, ResponderResources: 3}) }()
		req, err := b.ln.Accept(soon(t))
		require.NoError(t, err)
		passive, err := req.Accept(soon(t), other, cm.ConnParam{InitiatorDepth: 2, ResponderResources: 3})
		require.NoError(t, err)
		require.NoError(t, b.outcome(connected))
		for _, id := range []*cm.ID{id, passive} {
			ord, ird := id.PeerDepths()
			require.Equal(t, []int{-1, -1}, []int{ord, ird})
			require.NoError(t, id.Err())
		}
		require.NoError(t, passive.Close())
	}
	require.Zero(t, fakeverbs.Args("ibv_modify_qp")[1]&uint64(verbs.QPAttrDestQPN))
	require.NoError(t, slow.Close())
	require.ErrorIs(t, b.outcome(ended), verbs.ErrClosed)
}

// TestDatagramsRise: a UD QP that cannot be moved to RTS neither connects nor joins a group.
func TestDatagramsRise(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	cfg := cm.Config{PortSpace: cm.PortSpaceUDP}
	for _, c := range []struct {
		call string
		nth  int
	}{{"ibv_query_qp", 2}, {"ibv_modify_qp", 1}, {"ibv_modify_qp", 2}} { // the handle makes the first query
		bound := func() *verbs.QP {
			qp := b.qp(verbs.QPTypeUD)
			require.NoError(t, b.resolve(cfg).BindQP(qp))
			return qp
		}
		id, qp := b.resolve(cfg), bound()
		fakeverbs.Fail(c.call, c.nth, syscall.EIO)
		require.ErrorIs(t, id.Connect(soon(t), qp, cm.ConnParam{}), syscall.EIO)
		require.Zero(t, fakeverbs.Calls("rdma_connect"))

		id, qp = b.resolve(cfg), bound()
		fakeverbs.Fail(c.call, c.nth, syscall.EIO)
		_, err := id.JoinMulticast(soon(t), qp, netip.MustParseAddr("239.1.2.3"))
		require.ErrorIs(t, err, syscall.EIO)
		require.Zero(t, fakeverbs.Calls("rdma_join_multicast"))
	}
	id, qp, other := b.resolve(cfg), b.qp(verbs.QPTypeUD), b.qp(verbs.QPTypeUD)
	require.NoError(t, b.resolve(cfg).BindQP(other))
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	req, err := b.ln.Accept(soon(t))
	require.NoError(t, err)
	fakeverbs.Fail("ibv_modify_qp", 2, syscall.EIO)
	_, err = req.Accept(soon(t), other, cm.ConnParam{})
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, b.outcome(connected), cm.ErrRejected)
}

// TestNoDatagrams: iWARP has none.
func TestNoDatagrams(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	cfg := cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP}
	_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cfg)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = cm.Listen(soon(t), "198.51.100.1:0", cfg)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = b.resolve(cm.Config{}).JoinMulticast(soon(t), b.qp(0), netip.MustParseAddr("239.1.2.3"))
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestMulticast joins and leaves, including when the ID is closed.
func TestMulticast(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	group := netip.MustParseAddr("239.1.2.3")
	cfg := cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP}
	id, err := cm.Resolve(soon(t), "192.0.2.1:7", cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	qp := b.qp(verbs.QPTypeUD)
	m, err := id.JoinMulticast(soon(t), qp, group)
	require.NoError(t, err)
	require.Equal(t, group, m.Group())
	require.Equal(t, verbs.QPStateRTS, qp.State())
	require.Equal(t, 1, fakeverbs.Calls("ibv_attach_mcast"))
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.NoError(t, m.Leave())
	require.NoError(t, m.Leave())
	require.Equal(t, 1, fakeverbs.Calls("ibv_detach_mcast"))
	require.Equal(t, 1, fakeverbs.Calls("rdma_leave_multicast"))

	fakeverbs.CMNext("rdma_join_multicast",
		fakeverbs.CMEvent{Event: int(cm.EventMulticastError), Status: -int(syscall.EINVAL)})
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, syscall.EINVAL)
	fakeverbs.CMNext("rdma_join_multicast", fakeverbs.CMEvent{Event: int(cm.EventMulticastError)})
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorContains(t, err, "RDMA_CM_EVENT_MULTICAST_ERROR", "whatever its status says")
	fakeverbs.CMNext("rdma_join_multicast", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
	_, err = id.JoinMulticast(b.expiresWhenCalled("rdma_join_multicast"), qp, group)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = id.JoinMulticast(soon(t), nil, group)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.Equal(t, 1, strings.Count(err.Error(), "JoinMulticast"), err.Error())
	_, err = id.JoinMulticast(soon(t), qp, netip.MustParseAddr("192.0.2.1"))
	require.ErrorIs(t, err, verbs.ErrInvalid)

	fakeverbs.CMNext("rdma_join_multicast",
		fakeverbs.CMEvent{Event: int(cm.EventMulticastJoin), Status: -int(syscall.EIO)})
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, syscall.EIO)
	fakeverbs.Fail("ibv_attach_mcast", 1, syscall.ENOMEM)
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Equal(t, fakeverbs.Calls("rdma_join_multicast"), fakeverbs.Calls("rdma_leave_multicast"),
		"what failed is left too")
	_, err = id.JoinMulticast(soon(t), b.qp(0), group)
	require.ErrorIs(t, err, verbs.ErrInvalid, "an RC QP")
	tcp := b.resolve(cm.Config{})
	_, err = tcp.JoinMulticast(soon(t), b.qp(verbs.QPTypeUD), group)
	require.ErrorIs(t, err, verbs.ErrInvalid, "port space tcp")

	m, err = id.JoinMulticast(soon(t), qp, group)
	require.NoError(t, err)
	require.NoError(t, m.Leave())
	m, err = id.JoinMulticast(soon(t), qp, group)
	require.NoError(t, err, "again")
	require.NoError(t, id.Close())
	require.NoError(t, m.Leave(), "the ID has left it")
	require.Equal(t, fakeverbs.Calls("ibv_attach_mcast")-1, fakeverbs.Calls("ibv_detach_mcast"),
		"but for the one that failed")
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestMulticastJoining: Close of the ID cancels a JoinMulticast in progress, which leaves nothing
// behind.
func TestMulticastJoining(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	id, qp := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}), b.qp(verbs.QPTypeUD)
	fakeverbs.CMNext("rdma_join_multicast", silence)
	called := b.untilCalled("rdma_join_multicast")
	joined := make(chan error, 1)
	go func() {
		_, err := id.JoinMulticast(b.Context(), qp, netip.MustParseAddr("ff0e::77"))
		joined <- err
	}()
	wait(t, called.Done(), "the call")
	require.NoError(t, id.Close())
	require.ErrorIs(t, <-joined, verbs.ErrClosed)
	require.Equal(t, 1, fakeverbs.Calls("rdma_leave_multicast"))
}

// TestMulticastAndConnect: an ID that fails to connect leaves its groups, and a connected ID can
// join others.
func TestMulticastAndConnect(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	id, qp := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}), b.qp(verbs.QPTypeUD)
	m, err := id.JoinMulticast(soon(t), qp, netip.MustParseAddr("239.1.2.3"))
	require.NoError(t, err)
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: 1})
	require.Error(t, id.Connect(soon(t), qp, cm.ConnParam{}))
	require.NoError(t, m.Leave())
	require.Equal(t, fakeverbs.Calls("ibv_attach_mcast"), fakeverbs.Calls("ibv_detach_mcast"))
	require.NoError(t, id.Close())

	id = b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	first, err := id.JoinMulticast(soon(t), qp, netip.MustParseAddr("239.1.2.3"))
	require.NoError(t, err)
	accepted := make(chan *cm.ID, 1)
	other := b.qp(verbs.QPTypeUD)
	go func() {
		req, err := b.ln.Accept(soon(t))
		if err != nil {
			accepted <- nil
			return
		}
		passive, _ := req.Accept(soon(t), other, cm.ConnParam{})
		accepted <- passive
	}()
	require.NoError(t, id.Connect(soon(t), qp, cm.ConnParam{}))
	passive := <-accepted
	require.NotNil(t, passive)
	for _, id := range []*cm.ID{id, passive} {
		m, err := id.JoinMulticast(soon(t), id.QP(), netip.MustParseAddr("239.1.2.4"))
		require.NoError(t, err)
		require.EqualValues(t, cm.MulticastQPN, m.QPN)
		m, err = id.JoinMulticast(soon(t), b.qp(verbs.QPTypeUD), netip.MustParseAddr("239.1.2.5"))
		require.NoError(t, err, "for another QP, in RESET")
		require.NoError(t, m.Leave())
		_, err = id.JoinMulticast(soon(t), id.QP(), netip.MustParseAddr("239.1.2.4"))
		require.ErrorIs(t, err, verbs.ErrInvalid, "a member")
	}
	require.NoError(t, first.Leave())
	require.NoError(t, (*cm.Multicast)(nil).Leave())
	require.NoError(t, passive.Close())
	require.NoError(t, id.Close())
	require.Equal(t, fakeverbs.Calls("rdma_join_multicast"), fakeverbs.Calls("rdma_leave_multicast"))
}

// TestResolveGroup: an ID can be resolved to the address of a group, which has no single route.
func TestResolveGroup(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, group := range []string{"239.1.2.3", "ff0e::77"} {
		id, err := cm.Resolve(soon(t), net.JoinHostPort(group, "7306"),
			cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP})
		require.NoError(t, err)
		require.Zero(t, fakeverbs.Calls("rdma_resolve_route"))
		m, err := id.JoinMulticast(soon(t), b.qp(verbs.QPTypeUD), netip.MustParseAddr(group))
		require.NoError(t, err)
		require.Equal(t, group, m.Group().String())
		require.NoError(t, id.Close())
	}
}
