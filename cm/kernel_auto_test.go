// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// elsewhere is an address to which no kernel device has a route.
const elsewhere = "203.0.113.1"

// register adds a user-space NIC on its own network.
func register(t *testing.T, network usiw.Network) *verbs.Device {
	t.Helper()
	nic, err := usiw.Register(usiw.Config{Network: network})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, nic.Device().CloseShared())
		require.NoError(t, nic.Close())
	})
	return nic.Device()
}

// auto tests an address that selects among the kernel devices.
func auto(t *testing.T) {
	t.Helper()
	fakeverbs.Start(t)
	t.Cleanup(func() {
		for _, f := range fakes {
			require.NoError(t, device(t, f.name).CloseShared())
		}
	})
}

// ask requests a connection with a new QP.
func ask(t *testing.T, address string) <-chan error {
	t.Helper()
	id, err := cm.Resolve(soon(t), address, cm.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, id.Close()) })
	qp := newQP(t, id.Context(), 0)
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	return connected
}

// TestAutoWithNIC: a listener listens on the kernel devices and the registered NICs, on one port.
// Each request has the context of its device. Addresses to which the kernel has no route are
// resolved on the NIC.
func TestAutoWithNIC(t *testing.T) {
	auto(t)
	wire := usiwtest.NewWire()
	nics := []*verbs.Device{register(t, wire), register(t, usiwtest.NewWire())}
	ln, err := cm.Listen(soon(t), ":0", cm.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, append([]*verbs.Device{device(t, "fake0"), device(t, "fake1")}, nics...), ln.Devices())
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for host, dev := range map[string]*verbs.Device{fakes[0].ip: device(t, "fake0"), fakes[1].ip: device(t, "fake1"),
		elsewhere: nics[0]} {
		connected := ask(t, net.JoinHostPort(host, port))
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.Same(t, dev, req.Context().Device())
		require.NoError(t, req.Reject(nil))
		require.ErrorIs(t, <-connected, cm.ErrRejected)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ln.Accept(done)
	require.ErrorIs(t, err, context.Canceled)
	accepted := make(chan error, 1)
	go func() { _, err := ln.Accept(t.Context()); accepted <- err }()
	require.NoError(t, ln.Close())
	require.ErrorIs(t, <-accepted, verbs.ErrClosed)
	_, err = ln.Accept(t.Context())
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestAutoCloses: Close refuses the waiting requests on every device.
func TestAutoCloses(t *testing.T) {
	auto(t)
	nic := register(t, usiwtest.NewWire())
	ln, err := cm.Listen(soon(t), ":0", cm.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Contains(t, ln.Devices(), nic)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	asked := []<-chan error{ask(t, net.JoinHostPort(fakes[0].ip, port)), ask(t, net.JoinHostPort(fakes[1].ip, port))}
	atNIC := ask(t, net.JoinHostPort(elsewhere, port))
	b := bench{T: t}
	b.until("the requests", func() bool {
		n := 0
		for _, id := range fakeverbs.CMIDs() {
			if id.State == fakeverbs.CMRequested {
				n++
			}
		}
		return n == len(asked)
	})
	require.NoError(t, ln.Close())
	for _, connected := range asked {
		require.ErrorIs(t, <-connected, cm.ErrRejected)
	}
	require.Error(t, <-atNIC) // refused, or nothing listens there
	require.Empty(t, listening())
}

// TestAutoListensOnAnAddress: a listener uses only the kernel device that has its address.
func TestAutoListensOnAnAddress(t *testing.T) {
	auto(t)
	for _, f := range fakes {
		ln, err := cm.Listen(soon(t), net.JoinHostPort(f.ip, "0"), cm.Config{})
		require.NoError(t, err)
		require.Equal(t, []*verbs.Device{device(t, f.name)}, ln.Devices())
		require.Same(t, device(t, f.name), ln.Context().Device())
		require.NoError(t, ln.Close())
	}
}

// TestAutoOfNICs: without kernel devices the NICs also share one port, and a port that is in use is
// an error.
func TestAutoOfNICs(t *testing.T) {
	noKernel(t)
	wires := []usiw.Network{usiwtest.NewWire(), usiwtest.NewWire()}
	nics := []*verbs.Device{register(t, wires[0]), register(t, wires[1])}
	ln, err := cm.Listen(soon(t), ":0", cm.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, nics, ln.Devices())
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for i, wire := range wires {
		peer, err := usiw.New(usiw.Config{Network: wire})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, peer.Device().CloseShared())
			require.NoError(t, peer.Close())
		})
		id, err := cm.Resolve(soon(t), net.JoinHostPort(elsewhere, port), cm.Config{Device: peer.Device()})
		require.NoError(t, err)
		qp := newQP(t, id.Context(), 0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.Same(t, nics[i], req.Context().Device())
		require.NoError(t, req.Reject(nil))
		require.ErrorIs(t, <-connected, cm.ErrRejected)
		require.NoError(t, id.Close())
	}
}

// TestAutoPortTaken: if the port is in use on the only device, Listen fails.
func TestAutoPortTaken(t *testing.T) {
	noKernel(t)
	register(t, noListener{err: syscall.EADDRINUSE})
	fakeverbs.Fail("rdma_create_event_channel", 1, syscall.ENODEV)
	_, err := cm.Listen(soon(t), ":7306", cm.Config{})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	register(t, usiwtest.NewWire())
	fakeverbs.Fail("rdma_create_event_channel", 1, syscall.ENODEV)
	_, err = cm.Listen(done, ":7306", cm.Config{})
	require.ErrorIs(t, err, syscall.ENODEV, "there is no time to go on")
}

// noListener is a network on which Listen fails.
type noListener struct {
	usiw.Network
	err error
}

func (n noListener) Listen(context.Context, string, string) (net.Listener, error) { return nil, n.err }

// TestAutoListenFails: if listening fails on one of the devices, Listen fails with that error and
// leaves nothing open. The exception is a NIC whose port a kernel device already has: it is left
// out.
func TestAutoListenFails(t *testing.T) {
	auto(t)
	cfg := cm.Config{}
	nic := register(t, usiwtest.NewWire())
	fakeverbs.Fail("rdma_bind_addr", 1, syscall.EADDRINUSE)
	_, err := cm.Listen(soon(t), ":7306", cfg)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the kernel's devices are not left out in silence")
	fakeverbs.Fail("ibv_open_device", 1, syscall.EMFILE)
	_, err = cm.Listen(soon(t), ":7306", cfg)
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Empty(t, fakeverbs.CMIDs())

	fakeverbs.Fail("rdma_create_event_channel", 1, syscall.ENODEV)
	ln, err := cm.Listen(soon(t), ":7306", cfg)
	require.NoError(t, err)
	require.Equal(t, []*verbs.Device{nic}, ln.Devices(), "a kernel without a connection manager")
	require.Same(t, nic, ln.Context().Device())
	require.NoError(t, ln.Close())

	taken := register(t, noListener{err: syscall.EADDRINUSE})
	ln, err = cm.Listen(soon(t), ":7306", cfg)
	require.NoError(t, err)
	require.NotContains(t, ln.Devices(), taken)
	require.Len(t, ln.Devices(), 3)
	require.NoError(t, ln.Close())
	register(t, noListener{err: syscall.EACCES})
	_, err = cm.Listen(soon(t), ":7306", cfg)
	require.ErrorIs(t, err, syscall.EACCES)
	require.Empty(t, fakeverbs.CMIDs())
}

// TestAutoResolveFails: if a kernel device has the route but cannot reach the peer, the NIC is not
// used instead.
func TestAutoResolveFails(t *testing.T) {
	auto(t)
	register(t, usiwtest.NewWire())
	fakeverbs.CMNext("rdma_resolve_route",
		fakeverbs.CMEvent{Event: int(cm.EventRouteError), Status: -int(syscall.ETIMEDOUT)})
	_, err := cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{})
	require.ErrorIs(t, err, cm.ErrSetupTimeout)
	fakeverbs.CMNext("rdma_resolve_addr", silence)
	b := bench{T: t}
	_, err = cm.Resolve(b.untilCalled("rdma_resolve_addr"), "192.0.2.1:7306", cm.Config{})
	require.ErrorIs(t, err, context.Canceled)
}
