// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestChannelEnds: the event channel exists only while there are IDs.
func TestChannelEnds(t *testing.T) {
	fakeverbs.Start(t)
	for range 3 {
		ln, err := cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Device: device(t, "fake0")})
		require.NoError(t, err)
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: device(t, "fake0")})
		require.NoError(t, err)
		require.NoError(t, ln.Close())
		require.NoError(t, id.Close())
	}
	require.NoError(t, device(t, "fake0").CloseShared())
	require.Equal(t, 3, fakeverbs.Calls("rdma_create_event_channel"))
	require.Equal(t, 3, fakeverbs.Calls("rdma_destroy_event_channel"))
	require.Equal(t, fakeverbs.Calls("rdma_create_id"), fakeverbs.Calls("rdma_destroy_id"))
}

// noKernel hides the devices.
func noKernel(t *testing.T) {
	fakeverbs.Start(t)
	fakeverbs.SetHidden(fakeverbs.Fake0, true)
	fakeverbs.SetHidden(fakeverbs.Fake1, true)
}

// TestNoChannel: without a connection manager in the kernel, an address finds no device.
func TestNoChannel(t *testing.T) {
	fakeverbs.Start(t)
	for _, no := range []syscall.Errno{syscall.ENODEV, syscall.ENOENT, syscall.EPERM} {
		fakeverbs.Fail("rdma_create_event_channel", 1, no)
		_, err := cm.Resolve(soon(t), "192.0.2.1:1", cm.Config{})
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorIs(t, err, no)
		require.ErrorContains(t, err, "192.0.2.1:1")
		require.ErrorContains(t, err, "fake0 fake1")
	}
}

// TestAuto: the route to the address selects among the kernel devices, and a listener listens on
// all of them.
func TestAuto(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() {
		require.NoError(t, device(t, "fake0").CloseShared())
		require.NoError(t, device(t, "fake1").CloseShared())
	})
	ln, err := cm.Listen(soon(t), ":0", cm.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, []*verbs.Device{device(t, "fake0"), device(t, "fake1")}, ln.Devices())
	require.Contains(t, ln.String(), "[fake0 fake1]")
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for _, f := range fakes {
		id, err := cm.Resolve(soon(t), net.JoinHostPort(f.ip, port), cm.Config{})
		require.NoError(t, err)
		require.Same(t, device(t, f.name), id.Context().Device())
		require.Contains(t, id.String(), f.name)
		qp := newQP(t, id.Context(), 0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.Same(t, id.Context(), req.Context(), "the device that it came in on")
		require.NoError(t, req.Reject(nil))
		require.ErrorIs(t, <-connected, cm.ErrRejected)
		require.NoError(t, id.Close())
	}
	_, err = cm.Resolve(soon(t), "203.0.113.1:1", cm.Config{})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "203.0.113.1:1")
}
