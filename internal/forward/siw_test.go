// SPDX-License-Identifier: BSD-3-Clause

package forward_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newNIC makes a NIC that is closed when the test ends.
func newNIC(t *testing.T) *verbs.Device {
	t.Helper()
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// wrap wraps a device for the time of a test.
func wrap(t *testing.T, below *verbs.Device) *verbs.Device {
	t.Helper()
	d := forward.Wrap(below)
	t.Cleanup(func() { require.NoError(t, d.CloseShared()) })
	return d
}

// TestVerbs runs the conformance suite on a device that forwards to a user-space RNIC.
func TestVerbs(t *testing.T) {
	verbstest.Run(t, func(t *testing.T) verbstest.Fabric {
		nic := newNIC(t)
		return verbstest.Fabric{Active: wrap(t, nic), Passive: wrap(t, nic), Listen: "127.0.0.1:0",
			Others: []*verbs.Device{nic}}
	})
}

// TestAbort: Abort of the outer ID ends the inner one, and both have the port of the device below.
func TestAbort(t *testing.T) {
	dev := wrap(t, newNIC(t))
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Device: dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	accepted := make(chan *cm.Request, 1)
	go func() {
		r, _ := ln.Accept(soon(t))
		accepted <- r
	}()
	id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: dev})
	require.NoError(t, err)
	require.Equal(t, 1, id.PortNum())
	vctx := id.Context()
	defer func() { require.NoError(t, vctx.CloseAll()) }()
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	other, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	r := <-accepted
	require.NotNil(t, r)
	require.Equal(t, 1, r.PortNum())
	passive, err := r.Accept(soon(t), other, cm.ConnParam{})
	require.NoError(t, err)
	require.NoError(t, <-connected)
	require.NoError(t, id.Abort())
	require.ErrorIs(t, id.Err(), verbs.ErrClosed)
	<-passive.Done()
	require.ErrorIs(t, passive.Err(), syscall.ECONNRESET, "not the orderly end of a Close")
	require.NoError(t, passive.Close())
}
