// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestActiveRises: a failure after the peer's answer ends the attempt, and moves the QP to ERR.
func TestActiveRises(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, c := range []struct {
		call string
		nth  int // after the calls of Accept
	}{{"ibv_modify_qp", 3}, {"ibv_modify_qp", 4}, {"rdma_init_qp_attr", 3}, {"rdma_init_qp_attr", 4},
		{"rdma_establish", 1}} {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		require.NoError(t, id.BindQP(qp))
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.BindQP(other))
		fakeverbs.Fail(c.call, c.nth, syscall.EIO)
		passive, err := req.Accept(soon(t), other, cm.ConnParam{})
		require.ErrorIs(t, <-connected, syscall.EIO, c.call)
		require.Equal(t, verbs.QPStateErr, qp.State())
		if err == nil { // the answer was already sent
			wait(t, passive.Done(), "the end")
			require.NoError(t, passive.Close())
		}
	}
}

// TestParameters: the caller's parameters reach the library.
func TestParameters(t *testing.T) {
	eachFake(t, func(b *bench) {
		active, passive := b.pair(
			cm.ConnParam{PrivateData: []byte("abc"), InitiatorDepth: 5, ResponderResources: 3, RetryCount: 2,
				RNRRetryCount: cm.None})
		ids := fakeverbs.CMIDs()
		var p fakeverbs.CMEvent
		for _, id := range ids {
			if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "abc" {
				p = id.Param
			}
		}
		require.Equal(b, active.QP().Num(), p.QPN)
		require.EqualValues(b, 2, p.RetryCount)
		require.EqualValues(b, 0, p.RNRRetryCount)
		ord, ird := active.Depths()
		require.Equal(b, []int{5, 3}, []int{ord, ird})
		ord, ird = passive.Depths()
		require.Equal(b, []int{3, 5}, []int{ord, ird})
		ord, ird = passive.PeerDepths()
		require.Equal(b, []int{5, 3}, []int{ord, ird})
		ord, ird = active.PeerDepths()
		require.Equal(b, []int{3, 5}, []int{ord, ird})
	})
}

// TestParametersLeftOut: parameters that are 0 have the documented defaults of ConnParam.
func TestParametersLeftOut(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	b.pair(cm.ConnParam{PrivateData: []byte("abc")})
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "abc" {
			require.EqualValues(t, 6, id.Param.RetryCount)
			require.EqualValues(t, 7, id.Param.RNRRetryCount)
			return
		}
	}
	require.Fail(t, "no connected ID with that private data")
}

// TestParametersOutOfRange: such parameters are refused by name.
func TestParametersOutOfRange(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for name, param := range map[string]cm.ConnParam{
		"private data":       {PrivateData: make([]byte, 57)},
		"InitiatorDepth":     {InitiatorDepth: 255},
		"ResponderResources": {ResponderResources: 255},
		"RetryCount":         {RetryCount: 8},
		"RNRRetryCount":      {RNRRetryCount: 8},
		"MinRNRTimer":        {MinRNRTimer: 32},
	} {
		err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), param)
		require.ErrorIs(t, err, verbs.ErrLimit, name)
		require.ErrorContains(t, err, name)
	}
	for name, param := range map[string]cm.ConnParam{"RetryCount -2": {RetryCount: -2},
		"InitiatorDepth -2": {InitiatorDepth: -2}} {
		err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), param)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, b.resolve(cm.Config{}).Connect(soon(t), b.qp(verbs.QPTypeUD), cm.ConnParam{}), verbs.ErrInvalid)
	require.Zero(t, fakeverbs.Calls("rdma_connect"), "nobody was contacted")
	b.pair(cm.ConnParam{PrivateData: make([]byte, 56), InitiatorDepth: 1, ResponderResources: 1, RetryCount: 7,
		RNRRetryCount: 7, MinRNRTimer: 31})
	_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx, PortSpace: 77})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Context: b.vctx, PortSpace: 77})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestQPAttributes: the QP gets the negotiated depths and the receiver's timer.
func TestQPAttributes(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{InitiatorDepth: 5, ResponderResources: 3, MinRNRTimer: 20})
	for _, c := range []struct {
		id       *cm.ID
		ord, ird int
		rnr      uint8
	}{{active, 5, 3, 20}, {passive, 3, 5, cm.DefaultMinRNRTimer}} {
		attr, err := c.id.QP().Query()
		require.NoError(t, err)
		require.Equal(t, verbs.QPStateRTS, attr.State)
		require.Equal(t, []int{c.ord, c.ird}, []int{attr.MaxRdAtomic, attr.MaxDestRdAtomic})
		require.Equal(t, c.rnr, attr.MinRNRTimer)
		ord, ird := c.id.Depths()
		require.Equal(t, []int{c.ord, c.ird}, []int{ord, ird})
	}
	require.Equal(t, 1, fakeverbs.Calls("rdma_establish"))
}

// TestTOS is set before the address is resolved, and on a listener.
func TestTOS(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{TOS: 16})
	require.EqualValues(t, 16, last(t, fakeverbs.CMListening).TOS)
	require.False(t, last(t, fakeverbs.CMListening).AFOnly, "an address is of one family anyway")
	b.resolve(cm.Config{TOS: 32})
	id := last(t, fakeverbs.CMRouteResolved)
	require.True(t, id.TOSSet)
	require.EqualValues(t, 32, id.TOS)
	b.resolve(cm.Config{})
	require.False(t, last(t, fakeverbs.CMRouteResolved).TOSSet)
}

// TestSource binds the local address and port.
func TestSource(t *testing.T) {
	eachFake(t, func(b *bench) {
		b.resolve(cm.Config{Source: netip.AddrPortFrom(netip.MustParseAddr(b.ip), 4711)})
		require.EqualValues(b, 4711, last(b.T, fakeverbs.CMRouteResolved).SrcPort)
		b.resolve(cm.Config{Source: netip.AddrPortFrom(netip.Addr{}, 4712)})
		require.EqualValues(b, 4712, last(b.T, fakeverbs.CMRouteResolved).SrcPort)
		_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(),
			cm.Config{Context: b.vctx, Source: netip.MustParseAddrPort("203.0.113.9:4714")})
		require.ErrorIs(b, err, syscall.EADDRNOTAVAIL, "nobody's address")
		_, err = cm.Resolve(soon(b.T), b.ln.Addr().String(),
			cm.Config{Context: b.vctx, Source: netip.MustParseAddrPort("[2001:db8::1]:0")})
		require.ErrorIs(b, err, verbs.ErrInvalid)
		require.ErrorContains(b, err, b.ip+" has no address of the family of 2001:db8::1")
		there := map[bool]string{false: "[2001:db8::1]:7306", true: "[2001:db8:1::1]:7306"}[b.iwarp()]
		id, err := cm.Resolve(soon(b.T), there,
			cm.Config{Context: b.vctx, Source: netip.AddrPortFrom(netip.Addr{}, 4713)})
		require.NoError(b, err)
		require.EqualValues(b, 4713, last(b.T, fakeverbs.CMRouteResolved).SrcPort)
		require.NoError(b, id.Close())
	})
}
