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
)

// listening returns the listening ids.
func listening() (ids []fakeverbs.CMID) {
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMListening {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestWildcardHalfway: if the port is free for one address family only, Listen fails and leaves
// nothing open. With port 0 it tries another port.
func TestWildcardHalfway(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() { require.NoError(t, device(t, "fake0").CloseShared()) })
	cfg := cm.Config{Device: device(t, "fake0")}
	for _, call := range []string{"rdma_bind_addr", "rdma_listen"} {
		fakeverbs.Fail(call, 2, syscall.EADDRINUSE)
		_, err := cm.Listen(soon(t), ":7306", cfg)
		require.ErrorIs(t, err, syscall.EADDRINUSE, call)
		require.ErrorContains(t, err, call)
		require.Empty(t, fakeverbs.CMIDs(), call)

		fakeverbs.Fail(call, 2, syscall.EADDRINUSE)
		ln, err := cm.Listen(soon(t), ":0", cfg)
		require.NoError(t, err, call)
		ids := listening()
		require.Len(t, ids, 2)
		require.Equal(t, ids[0].SrcPort, ids[1].SrcPort)
		require.Len(t, fakeverbs.CMIDs(), 2, "and none that does not")
		require.NoError(t, ln.Close())
	}
}

// TestWildcardTaken: a port that another program has on the wildcard address is reported as in use,
// though the kernel reports a wildcard address as not available.
func TestWildcardTaken(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() { require.NoError(t, device(t, "fake0").CloseShared()) })
	fakeverbs.Fail("rdma_bind_addr", 1, syscall.EADDRNOTAVAIL)
	_, err := cm.Listen(soon(t), ":7306", cm.Config{Device: device(t, "fake0")})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	require.ErrorContains(t, err, ":7306")
	require.Empty(t, fakeverbs.CMIDs())

	fakeverbs.Fail("rdma_bind_addr", 1, syscall.EADDRNOTAVAIL)
	_, err = cm.Listen(soon(t), "192.0.2.77:7306", cm.Config{Device: device(t, "fake0")})
	require.ErrorIs(t, err, syscall.EADDRNOTAVAIL, "an address is another matter")
}

// TestWildcardWithoutIPv6: a host without IPv6 listens on IPv4.
func TestWildcardWithoutIPv6(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	fakeverbs.Fail("rdma_bind_addr", 2, syscall.EADDRNOTAVAIL)
	ln, err := cm.Listen(soon(t), ":7306", cm.Config{Context: b.vctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, "0.0.0.0:7306", ln.Addr().String())
	require.Len(t, listening(), 2, "that of the bench and one")
	id, err := cm.Resolve(soon(t), net.JoinHostPort(b.ip, "7306"), cm.Config{Context: b.vctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	qp := b.qp(0)
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	req, err := ln.Accept(soon(t))
	require.NoError(t, err)
	require.NoError(t, req.Reject(nil))
	require.ErrorIs(t, <-connected, cm.ErrRejected)
}

// TestWildcardTOS: connections accepted over either address family have the listener's type of
// service.
func TestWildcardTOS(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() { require.NoError(t, device(t, "fake0").CloseShared()) })
	ln, err := cm.Listen(soon(t), ":0", cm.Config{Device: device(t, "fake0"), TOS: 24})
	require.NoError(t, err)
	ids := listening()
	require.Len(t, ids, 2)
	for _, id := range ids {
		require.EqualValues(t, 24, id.TOS)
		require.True(t, id.AFOnly)
	}
	require.NoError(t, ln.Close())
}

// TestZones: a link-local address belongs to the network interface that its zone names or numbers.
func TestZones(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	lo, err := net.InterfaceByIndex(1) // whose link fake0 is on
	require.NoError(t, err)
	for _, zone := range []string{lo.Name, "1"} {
		ln, err := cm.Listen(soon(t), net.JoinHostPort("fe80::1%"+zone, "0"), cm.Config{Context: b.vctx})
		require.NoError(t, err)
		host, port, err := net.SplitHostPort(ln.Addr().String())
		require.NoError(t, err)
		require.Equal(t, "fe80::1%"+lo.Name, host)
		there := net.JoinHostPort("fe80::1%"+zone, port)
		id, err := cm.Resolve(soon(t), there, cm.Config{Context: b.vctx})
		require.NoError(t, err)
		qp, other := b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		passive, err := req.Accept(soon(t), other, cm.ConnParam{})
		require.NoError(t, err)
		require.NoError(t, <-connected)
		require.Equal(t, net.JoinHostPort(host, port), id.RemoteAddr().String())
		local, _, err := net.SplitHostPort(id.LocalAddr().String())
		require.NoError(t, err)
		require.Equal(t, host, local)
		for _, close := range []func() error{id.Close, passive.Close, ln.Close} {
			require.NoError(t, close())
		}

		_, err = cm.Resolve(soon(t), net.JoinHostPort("fe80::1", port), cm.Config{Context: b.vctx})
		require.ErrorIs(t, err, syscall.ENETUNREACH, "of which link")
	}
	for _, call := range []func(string) error{
		func(address string) error {
			_, err := cm.Resolve(soon(t), address, cm.Config{Context: b.vctx})
			return err
		},
		func(address string) error {
			_, err := cm.Listen(soon(t), address, cm.Config{Context: b.vctx})
			return err
		},
	} {
		require.ErrorContains(t, call("[fe80::1%nosuchlink]:7306"), `zone "nosuchlink"`)
		require.Error(t, call("[fe80::1%3]:7306"), "a link without a device")
	}
	require.ErrorContains(t, func() error {
		_, err := cm.Resolve(soon(t), "[fe80::1%2]:7306", cm.Config{Context: b.vctx})
		return err
	}(), `of "fake1", not of "fake0"`)
}
