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

// TestResolveEvents: the error has the status of the event.
func TestResolveEvents(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, c := range []struct {
			call   string
			ev     cm.Event
			status int
			is     error
		}{
			{"rdma_resolve_route", cm.EventRouteError, -int(syscall.ETIMEDOUT), cm.ErrSetupTimeout},
			{"rdma_resolve_addr", cm.EventAddrError, -int(syscall.EHOSTUNREACH), syscall.EHOSTUNREACH},
			{"rdma_resolve_addr", cm.EventAddrError, -int(syscall.ENODEV), verbs.ErrNoDevice},
			{"rdma_resolve_addr", cm.EventDeviceRemoval, 0, nil},
			{"rdma_resolve_route", cm.EventRouteError, -int(syscall.ENETUNREACH), syscall.ENETUNREACH},
			{"rdma_resolve_route", cm.EventRouteResolved, -int(syscall.EINVAL), syscall.EINVAL},
		} {
			fakeverbs.CMNext(c.call, fakeverbs.CMEvent{Event: int(c.ev), Status: c.status})
			_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cm.Config{Context: b.vctx})
			var oe *cm.OpError
			require.ErrorAs(b, err, &oe)
			require.Equal(b, "Resolve", oe.Op)
			require.Equal(b, b.ln.Addr().String(), oe.Addr)
			require.Equal(b, c.status == -int(syscall.ETIMEDOUT), oe.Timeout())
			var ee *cm.EventError
			require.ErrorAs(b, err, &ee)
			require.Equal(b, c.ev, ee.Event)
			require.Equal(b, c.status, ee.Status)
			require.ErrorContains(b, err, c.ev.String())
			if c.is != nil {
				require.ErrorIs(b, err, c.is)
			}
		}
	})
}

// TestResolveAgain: requests to the kernel are repeated while there is time.
func TestResolveAgain(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	late := fakeverbs.CMEvent{Event: int(cm.EventAddrError), Status: -int(syscall.ETIMEDOUT)}
	fakeverbs.CMNext("rdma_resolve_addr", late)
	fakeverbs.CMNext("rdma_resolve_addr", late)
	b.resolve(cm.Config{})
	require.Equal(t, 3, fakeverbs.Calls("rdma_resolve_addr"))
}

// TestCallsFail: the error of a call has its name and errno, and nothing is left open.
func TestCallsFail(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, call := range []string{"rdma_create_id", "rdma_resolve_addr", "rdma_resolve_route"} {
			fakeverbs.Fail(call, 1, syscall.ENOMEM)
			_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cm.Config{Context: b.vctx})
			require.ErrorIs(b, err, syscall.ENOMEM, call)
			require.ErrorContains(b, err, call)
		}
		for _, call := range []string{"rdma_create_id", "rdma_bind_addr", "rdma_listen"} {
			fakeverbs.Fail(call, 1, syscall.ENOMEM)
			_, err := cm.Listen(soon(b.T), net.JoinHostPort(b.ip, "0"), cm.Config{Context: b.vctx})
			require.ErrorIs(b, err, syscall.ENOMEM, call)
			require.ErrorContains(b, err, call)
		}
		fakeverbs.Fail("rdma_set_option", 1, syscall.EINVAL)
		_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cm.Config{Context: b.vctx, TOS: 32})
		require.ErrorIs(b, err, syscall.EINVAL)
		require.ErrorContains(b, err, "TOS 32")

		id := b.resolve(cm.Config{})
		fakeverbs.Fail("rdma_connect", 1, syscall.ENOMEM)
		err = id.Connect(soon(b.T), b.qp(0), cm.ConnParam{})
		require.ErrorIs(b, err, syscall.ENOMEM)
		require.ErrorContains(b, err, "rdma_connect")

		fakeverbs.Fail("rdma_init_qp_attr", 1, syscall.ENODEV)
		require.ErrorIs(b, b.resolve(cm.Config{}).BindQP(b.qp(0)), syscall.ENODEV)
	})
}

// TestPassiveCallsFail: after a failure on the passive side the request is refused.
func TestPassiveCallsFail(t *testing.T) {
	eachFake(t, func(b *bench) {
		calls := []string{"rdma_accept"}
		if !b.iwarp() {
			calls = append(calls, "ibv_modify_qp")
		}
		for _, call := range calls {
			id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
			req, err := b.ln.Accept(soon(b.T))
			require.NoError(b, err)
			require.NoError(b, req.BindQP(other))
			fakeverbs.Fail(call, 1, syscall.EINVAL)
			_, err = req.Accept(soon(b.T), other, cm.ConnParam{})
			require.ErrorIs(b, err, syscall.EINVAL)
			require.ErrorContains(b, err, call)
			require.ErrorIs(b, <-connected, cm.ErrRejected)
		}
		if b.iwarp() {
			return
		}
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		require.NoError(b, req.BindQP(other))
		fakeverbs.Fail("ibv_modify_qp", 2, syscall.EINVAL)
		_, err = req.Accept(soon(b.T), other, cm.ConnParam{})
		require.ErrorIs(b, err, syscall.EINVAL)
		require.Equal(b, verbs.QPStateErr, other.State(), "it has left INIT")
		require.ErrorIs(b, <-connected, cm.ErrRejected)
	})
}

// TestConnectEvents: the error of an attempt has the text of the event that ended it.
func TestConnectEvents(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, c := range []struct {
			ev     cm.Event
			status int
			is     error
			text   string
		}{
			{cm.EventUnreachable, -int(syscall.ETIMEDOUT), cm.ErrSetupTimeout, "RDMA_CM_EVENT_UNREACHABLE"},
			{cm.EventConnectError, -int(syscall.EINVAL), syscall.EINVAL, "RDMA_CM_EVENT_CONNECT_ERROR"},
			{cm.EventDeviceRemoval, 0, nil, "RDMA_CM_EVENT_DEVICE_REMOVAL"},
			{cm.EventDisconnected, 0, nil, "RDMA_CM_EVENT_DISCONNECTED"},
			{cm.EventEstablished, -int(syscall.EPROTO), syscall.EPROTO, "RDMA_CM_EVENT_ESTABLISHED"},
			{cm.EventRejected, 10, nil, "stale connection (10)"},
			{cm.EventRejected, 99, nil, "code 99"},
		} {
			if b.iwarp() && c.ev == cm.EventRejected {
				continue // it has only one reason
			}
			fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(c.ev), Status: c.status})
			qp := b.qp(0)
			err := b.resolve(cm.Config{}).Connect(soon(b.T), qp, cm.ConnParam{})
			var ee *cm.EventError
			require.ErrorAs(b, err, &ee, c.text)
			require.Equal(b, c.ev, ee.Event)
			require.ErrorContains(b, err, c.text)
			if c.is != nil {
				require.ErrorIs(b, err, c.is)
			}
			require.NotEqual(b, verbs.QPStateRTS, qp.State())
		}
	})
}

// TestStatus: a negative status is an errno. For -1, by which librdmacm reports that its own part
// of an event failed, the code is in errno.
func TestStatus(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, c := range []struct {
		status int
		errno  syscall.Errno
		is     error
		text   string
	}{
		{-int(syscall.EHOSTUNREACH), 0, syscall.EHOSTUNREACH, "no route to host"},
		{-int(syscall.EHOSTUNREACH), syscall.EIO, syscall.EHOSTUNREACH, "no route to host"},
		{-1, syscall.ENODEV, verbs.ErrNoDevice, "no such device"},
		{-1, 0, syscall.EPERM, "operation not permitted"},
		{5, 0, nil, "status 5"},
	} {
		fakeverbs.CMNext("rdma_resolve_addr",
			fakeverbs.CMEvent{Event: int(cm.EventAddrError), Status: c.status, Errno: c.errno})
		_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx})
		if c.is != nil {
			require.ErrorIs(t, err, c.is)
		}
		require.ErrorContains(t, err, "RDMA_CM_EVENT_ADDR_ERROR: "+c.text)
		var ee *cm.EventError
		require.ErrorAs(t, err, &ee)
		if c.status == -1 && c.errno != 0 {
			c.status = -int(c.errno)
		}
		require.Equal(t, c.status, ee.Status)
	}
}

// TestNobodyListens: without a listener the connection is refused, on both kinds of devices.
func TestNobodyListens(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: 8})
	err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), cm.ConnParam{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotErrorIs(t, err, cm.ErrRejected)
	require.ErrorContains(t, err, "invalid service ID (8)")
}
