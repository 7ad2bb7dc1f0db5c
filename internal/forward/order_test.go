// SPDX-License-Identifier: BSD-3-Clause

package forward_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// ends makes two connected QPs over a listener; the active side takes the device that cfg says.
func ends(t *testing.T, ln *cm.Listener, cfg cm.Config) (active, passive *cm.ID) {
	t.Helper()
	newQP := func(ctx *verbs.Context) *verbs.QP {
		pd, err := ctx.AllocPD()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, pd.Close()) })
		cq, err := ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, cq.Close()) })
		qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, qp.Close()) })
		return qp
	}
	type result struct {
		id  *cm.ID
		err error
	}
	accepted := make(chan result, 1)
	other, ctx := newQP(ln.Context()), soon(t)
	go func() {
		var r result
		var req *cm.Request
		if req, r.err = ln.Accept(ctx); r.err == nil {
			r.id, r.err = req.Accept(ctx, other, cm.ConnParam{})
		}
		accepted <- r
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cfg)
	require.NoError(t, err)
	qp := newQP(id.Context())
	t.Cleanup(func() { require.NoError(t, id.Close()) })
	require.NoError(t, id.Connect(ctx, qp, cm.ConnParam{}))
	r := <-accepted
	require.NoError(t, r.err)
	t.Cleanup(func() { require.NoError(t, r.id.Close()) })
	return id, r.id
}

// TestAuto: a device and one that wraps it are both registered. Both would listen on one port: the
// first of them does, and a connection is made by the first that can. A wrapper of a device that
// the address has offered is not opened.
func TestAuto(t *testing.T) {
	hideFakes(t)
	for _, wrapperFirst := range []bool{false, true} {
		nic := newNIC(t)
		var opened atomic.Int32
		providers := []verbs.ProviderDevice{nic.Provider(), counting{forward.Wrap(nic).Provider(), &opened}}
		if wrapperFirst {
			providers[0], providers[1] = providers[1], providers[0]
		}
		var registered []*verbs.Device
		for _, p := range providers {
			d, err := verbs.Register(p)
			require.NoError(t, err)
			t.Cleanup(func() {
				verbs.Unregister(d)
				require.NoError(t, d.CloseShared())
			})
			registered = append(registered, d)
		}
		t.Run(registered[0].Name()+" first", func(t *testing.T) {
			t.Cleanup(func() {
				for _, d := range registered {
					verbs.Unregister(d)
				}
			})
			ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, ln.Close()) })
			require.Len(t, ln.Devices(), 1)
			require.Same(t, registered[0], ln.Devices()[0])
			active, passive := ends(t, ln, cm.Config{})
			require.Same(t, registered[0], active.Context().Device())
			require.Same(t, registered[0], passive.Context().Device())
			require.Equal(t, wrapperFirst, opened.Load() > 0)
		})
	}
}

// counting is a device that counts how often it is opened.
type counting struct {
	verbs.ProviderDevice
	opened *atomic.Int32
}

func (d counting) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	d.opened.Add(1)
	return d.ProviderDevice.Open(owner)
}

// Unwrap has the connection manager.
func (d counting) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

// TestBelowEndsFirst: the device below goes away under handles that are in use. They notice, and
// can all be closed.
func TestBelowEndsFirst(t *testing.T) {
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	dev := wrap(t, nic.Device())
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Device: dev})
	require.NoError(t, err)
	active, passive := ends(t, ln, cm.Config{Device: dev})
	waited, accepted := make(chan error, 1), make(chan error, 1)
	cq, ctx := active.QP().SendCQ(), soon(t)
	n, err := active.QP().PostRecv([]verbs.RecvWR{{ID: 1}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	go func() { _, err := cq.Wait(ctx, make([]verbs.WC, 1)); waited <- err }()
	go func() { _, err := ln.Accept(ctx); accepted <- err }()
	require.NoError(t, nic.Close())
	<-active.Done()
	<-passive.Done()
	require.NoError(t, <-waited, "the receive is flushed")
	require.ErrorIs(t, <-accepted, verbs.ErrClosed)
	require.Error(t, active.Err())
	require.NoError(t, ln.Close())
	_, err = dev.Open()
	require.ErrorIs(t, err, verbs.ErrClosed)
}
