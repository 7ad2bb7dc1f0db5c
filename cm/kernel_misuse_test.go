// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// TestAddressesOutOfRange: an address without a valid port is refused by name.
func TestAddressesOutOfRange(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, address := range []string{"192.0.2.1:65536", "192.0.2.1:-1"} {
		_, err := cm.Resolve(soon(t), address, cm.Config{Context: b.vctx})
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "is not from 0 to 65535")
		_, err = cm.Listen(soon(t), address, cm.Config{Context: b.vctx})
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "is not from 0 to 65535")
	}
	for address, text := range map[string]string{"192.0.2.1:0": "port 0", ":7306": "no host"} {
		_, err := cm.Resolve(soon(t), address, cm.Config{Context: b.vctx})
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, text)
	}
}

// TestWrongQP: an ID and a request accept only an unused QP of their context, and stay usable after
// a wrong one.
func TestWrongQP(t *testing.T) {
	eachFake(t, func(b *bench) {
		stranger, err := b.dev.Open()
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, stranger.Close()) })
		active, _ := b.pair(cm.ConnParam{})
		used, foreign := active.QP(), newQP(b.T, stranger, 0)
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		require.ErrorIs(b, id.Connect(soon(b.T), foreign, cm.ConnParam{}), verbs.ErrForeign)
		require.ErrorIs(b, id.Connect(soon(b.T), nil, cm.ConnParam{}), verbs.ErrInvalid)
		err = id.Connect(soon(b.T), used, cm.ConnParam{})
		require.ErrorIs(b, err, verbs.ErrState)
		require.ErrorContains(b, err, "RESET or INIT")
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		_, err = req.Accept(soon(b.T), foreign, cm.ConnParam{})
		require.ErrorIs(b, err, verbs.ErrForeign)
		_, err = req.Accept(soon(b.T), used, cm.ConnParam{})
		require.ErrorIs(b, err, verbs.ErrState)
		passive, err := req.Accept(soon(b.T), other, cm.ConnParam{})
		require.NoError(b, err)
		require.NoError(b, b.outcome(connected))
		require.ErrorContains(b, id.Connect(soon(b.T), b.qp(0), cm.ConnParam{}), "an ID makes one connection")
		_, err = req.Accept(soon(b.T), b.qp(0), cm.ConnParam{})
		require.ErrorContains(b, err, "the request has been answered")
		require.NoError(b, passive.Close())
	})
}

// TestSpareQPs: a call refused for another reason does not change its QP, and a call refused
// because of its QP does not change the request.
func TestSpareQPs(t *testing.T) {
	eachFake(t, func(b *bench) {
		active, passive := b.pair(cm.ConnParam{})
		spare := b.qp(0)
		require.ErrorIs(b, active.Connect(soon(b.T), spare, cm.ConnParam{}), verbs.ErrInvalid)
		require.Equal(b, verbs.QPStateReset, spare.State())
		require.NoError(b, passive.BindQP(spare))
		require.Equal(b, verbs.QPStateInit, spare.State())
		var state *verbs.StateError
		require.ErrorAs(b, active.BindQP(active.QP()), &state)
		require.Equal(b, verbs.QPStateRTS, state.State)
		require.NoError(b, spare.Close())
		require.ErrorIs(b, active.BindQP(spare), verbs.ErrClosed)

		id, qp := b.resolve(cm.Config{}), b.qp(0)
		ord, ird := id.Depths()
		require.Equal(b, []int{0, 0}, []int{ord, ird})
		ord, ird = id.PeerDepths()
		require.Equal(b, []int{-1, -1}, []int{ord, ird})
		require.ErrorIs(b, id.Disconnect(), verbs.ErrInvalid)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		require.ErrorIs(b, req.BindQP(nil), verbs.ErrInvalid)
		_, err = req.Accept(soon(b.T), nil, cm.ConnParam{})
		require.ErrorIs(b, err, verbs.ErrInvalid)
		require.NoError(b, req.Reject(nil), "it is still to be answered")
		require.ErrorIs(b, b.outcome(connected), cm.ErrRejected)
	})
}

// TestBindFails: a QP that the device does not move to INIT is not bound. The request to the device
// has access rights, port and partition.
func TestBindFails(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		fakeverbs.Fail("ibv_modify_qp", 1, syscall.EIO)
		require.ErrorIs(b, id.BindQP(qp), syscall.EIO)
		require.NoError(b, id.BindQP(qp))
		bound, ok := fakeverbs.QPByNum(qp.Num())
		require.True(b, ok)
		const mask = verbs.QPAttrState | verbs.QPAttrAccessFlags | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
		require.EqualValues(b, mask, bound.Mask&uint32(mask))
	})
}

// TestUDStates: a UD QP may be in RTR or RTS already, and not in ERR.
func TestUDStates(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	qp := b.qp(verbs.QPTypeUD)
	id := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	require.NoError(t, id.BindQP(qp))
	for _, attr := range []struct {
		state verbs.QPState
		mask  verbs.QPAttrMask
		is    error
	}{{verbs.QPStateRTR, 0, nil}, {verbs.QPStateRTS, verbs.QPAttrSQPSN, nil}, {verbs.QPStateErr, 0, verbs.ErrState}} {
		require.NoError(t, qp.Modify(verbs.QPAttr{State: attr.state}, verbs.QPAttrState|attr.mask))
		require.ErrorIs(t, id.BindQP(qp), attr.is)
	}
}

// TestChosen: a context must belong to the configured device, if there is one.
func TestChosen(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, call := range []func(cfg cm.Config) (*verbs.Context, error){
		func(cfg cm.Config) (*verbs.Context, error) {
			id, err := cm.Resolve(soon(t), "192.0.2.1:7306", cfg)
			if err != nil {
				return nil, err
			}
			return id.Context(), id.Close()
		},
		func(cfg cm.Config) (*verbs.Context, error) {
			ln, err := cm.Listen(soon(t), "192.0.2.1:0", cfg)
			if err != nil {
				return nil, err
			}
			return ln.Context(), ln.Close()
		},
	} {
		for _, dev := range []*verbs.Device{nil, b.dev} {
			vctx, err := call(cm.Config{Device: dev, Context: b.vctx})
			require.NoError(t, err)
			require.Same(t, b.vctx, vctx)
		}
		_, err := call(cm.Config{Device: device(t, "fake1"), Context: b.vctx})
		require.ErrorIs(t, err, verbs.ErrForeign)
	}
}

// TestNICRefuses: a user-space NIC refuses datagrams, multicast groups and a type of service, with
// an explanation.
func TestNICRefuses(t *testing.T) {
	fakeverbs.Start(t)
	nic := register(t, usiwtest.NewWire())
	for _, cfg := range []cm.Config{{Device: nic, PortSpace: cm.PortSpaceUDP}, {Device: nic, TOS: 8}} {
		_, err := cm.Resolve(soon(t), "192.0.2.1:7306", cfg)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
		_, err = cm.Listen(soon(t), "192.0.2.1:0", cfg)
		require.ErrorIs(t, err, verbs.ErrNotSupported)
	}
	id, err := cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{Device: nic})
	require.NoError(t, err)
	_, err = id.JoinMulticast(soon(t), newQP(t, id.Context(), 0), netip.MustParseAddr("239.1.2.3"))
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.NoError(t, id.Close())
}

// TestDialFails: a failed Dial leaves nothing open.
func TestDialFails(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	no := errors.New("no QP")
	before := fakeverbs.Live()
	_, err := cm.Dial(soon(t), "192.0.2.1", cm.Config{Context: b.vctx}, cm.EndpointConfig{})
	require.ErrorContains(t, err, "missing port")
	var qp *verbs.QP
	prepare := func(result error) cm.EndpointConfig {
		return cm.EndpointConfig{Prepare: func(ep *cm.Endpoint, _ *cm.ConnParam) error {
			qp = ep.QP()
			return result
		}}
	}
	_, err = cm.Dial(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx}, prepare(no))
	require.ErrorIs(t, err, no)
	_, err = qp.Query()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Equal(t, before, fakeverbs.Live())
	fakeverbs.Fail("rdma_connect", 1, 12)
	_, err = cm.Dial(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx}, prepare(nil))
	require.ErrorContains(t, err, "rdma_connect")
	_, err = qp.Query()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Equal(t, before, fakeverbs.Live())
}
