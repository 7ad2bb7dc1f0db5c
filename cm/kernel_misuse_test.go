// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestAddressesOutOfRange: an address without a port that exists is refused by name.
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

// TestWrongQP: an ID and a request accept only a QP of their context that is not in use. They stay usable after a wrong one.
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

// TestDialFails: a Dial that fails leaves nothing open.
func TestDialFails(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	no := errors.New("no QP")
	before := fakeverbs.Live()
	_, err := cm.Dial(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx}, func(*cm.ID) (*verbs.QP, error) { return nil, no }, cm.ConnParam{})
	require.ErrorIs(t, err, no)
	require.Equal(t, before, fakeverbs.Live())
	var qp *verbs.QP
	fakeverbs.Fail("rdma_connect", 1, 12)
	_, err = cm.Dial(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx}, func(*cm.ID) (*verbs.QP, error) {
		qp = b.qp(0)
		return qp, nil
	}, cm.ConnParam{})
	require.ErrorContains(t, err, "rdma_connect")
	_, err = qp.Query()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.Equal(t, before["id"], fakeverbs.Live()["id"])
}
