// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestErrorsOfCalls: the error of a librdmacm call has the name of the call, the device once it is
// known, the address and the reason; EOPNOTSUPP has its name.
func TestErrorsOfCalls(t *testing.T) {
	resolve := func(cfg cm.Config) func(b *bench) error {
		return func(b *bench) error {
			cfg.Context = b.vctx
			_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cfg)
			return err
		}
	}
	listen := func(host string, cfg cm.Config) func(b *bench) error {
		return func(b *bench) error {
			if cfg.Context = b.vctx; host == "" {
				cfg = cm.Config{}
			} else {
				host = b.ip
			}
			_, err := cm.Listen(soon(b.T), net.JoinHostPort(host, "0"), cfg)
			return err
		}
	}
	// asked makes a request arrive.
	asked := func(b *bench, answer func(req *cm.Request) error) error {
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		err = answer(req)
		require.NoError(b, id.Close())
		require.Error(b, <-connected)
		return err
	}
	joined := func(b *bench) (*cm.Multicast, error) {
		id := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
		return id.JoinMulticast(soon(b.T), b.qp(verbs.QPTypeUD), netip.MustParseAddr("239.1.2.3"))
	}
	for _, c := range []struct {
		name, call, text string // text begins with the call; " on DEVICE" and the reason follow
		noDevice         bool   // no device is known
		ib               bool   // not on iWARP
		space            cm.PortSpace
		do               func(b *bench) error
	}{
		{name: "id to connect", call: "rdma_create_id", noDevice: true, do: resolve(cm.Config{})},
		{name: "resolve, TOS", call: "rdma_set_option", text: "rdma_set_option TOS 32", noDevice: true,
			do: resolve(cm.Config{TOS: 32})},
		{name: "resolve", call: "rdma_resolve_addr", noDevice: true, do: resolve(cm.Config{})},
		{name: "route", call: "rdma_resolve_route", do: resolve(cm.Config{})},
		{name: "id to listen", call: "rdma_create_id", noDevice: true, do: listen("device", cm.Config{})},
		{name: "listen, TOS", call: "rdma_set_option", text: "rdma_set_option TOS 8", noDevice: true,
			do: listen("device", cm.Config{TOS: 8})},
		{name: "listen anywhere", call: "rdma_set_option", text: "rdma_set_option AFONLY", noDevice: true,
			do: listen("", cm.Config{})},
		{name: "bind", call: "rdma_bind_addr", noDevice: true, do: listen("device", cm.Config{})},
		{name: "listen", call: "rdma_listen", do: listen("device", cm.Config{})},
		{name: "connect", call: "rdma_connect", do: func(b *bench) error {
			return b.resolve(cm.Config{}).Connect(soon(b.T), b.qp(0), cm.ConnParam{})
		}},
		{name: "QP to INIT", call: "rdma_init_qp_attr", text: "rdma_init_qp_attr for INIT", do: func(b *bench) error {
			return b.resolve(cm.Config{}).BindQP(b.qp(0))
		}},
		{name: "establish", call: "rdma_establish", ib: true, do: func(b *bench) error {
			id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
			accepted := make(chan error, 1)
			go func() {
				req, err := b.ln.Accept(soon(b.T))
				if err == nil {
					_, err = req.Accept(soon(b.T), other, cm.ConnParam{})
				}
				accepted <- err
			}()
			err := id.Connect(soon(b.T), qp, cm.ConnParam{})
			require.NoError(b, id.Close())
			require.Error(b, <-accepted)
			return err
		}},
		{name: "accept", call: "rdma_accept", do: func(b *bench) error {
			qp := b.qp(0)
			return asked(b, func(req *cm.Request) error {
				_,
					err := req.Accept(soon(b.T), qp, cm.ConnParam{})
				return err
			})
		}},
		{name: "reject", call: "rdma_reject", do: func(b *bench) error {
			return asked(b, func(req *cm.Request) error { return req.Reject(nil) })
		}},
		{name: "join", call: "rdma_join_multicast", ib: true, space: cm.PortSpaceUDP, do: func(b *bench) error {
			_, err := joined(b)
			return err
		}},
		{name: "leave", call: "rdma_leave_multicast", ib: true, space: cm.PortSpaceUDP, do: func(b *bench) error {
			m, err := joined(b)
			require.NoError(b, err)
			return m.Leave()
		}},
	} {
		for _, f := range fakes {
			if c.ib && f.name == "fake1" {
				continue
			}
			t.Run(c.name+"/"+f.name, func(t *testing.T) {
				b := newBench(t, f.name, f.ip, cm.Config{PortSpace: c.space})
				fakeverbs.Fail(c.call, 1, syscall.EOPNOTSUPP)
				err := c.do(b)
				text := c.text
				if text == "" {
					text = c.call
				}
				if !c.noDevice {
					text += " on " + f.name
				}
				require.ErrorIs(t, err, syscall.EOPNOTSUPP)
				require.ErrorContains(t, err, text+": operation not supported (EOPNOTSUPP)")
				var oe *cm.OpError
				require.ErrorAs(t, err, &oe)
				require.NotEmpty(t, oe.Op)
				require.NotEmpty(t, oe.Addr)
			})
		}
	}
	t.Run("channel", func(t *testing.T) {
		fakeverbs.Start(t)
		fakeverbs.Fail("rdma_create_event_channel", 1, syscall.EMFILE)
		_, err := cm.Resolve(soon(t), "192.0.2.1:1", cm.Config{Device: device(t, "fake0")})
		require.ErrorIs(t, err, syscall.EMFILE)
		require.ErrorContains(t, err, "rdma_create_event_channel: too many open files (EMFILE)")
		require.NoError(t, device(t, "fake0").CloseShared())
	})
	t.Run("event", func(t *testing.T) {
		// An event that cannot be read at once is read later.
		b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
		before := fakeverbs.Calls("rdma_get_cm_event")
		fakeverbs.Fail("rdma_get_cm_event", 1, syscall.ENOMEM)
		b.resolve(cm.Config{})
		require.Greater(t, fakeverbs.Calls("rdma_get_cm_event"), before+1)
	})
}

// TestRejectedHasErrno: the kernel's errno for a refusal is in the error too.
func TestRejectedHasErrno(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	for _, no := range []syscall.Errno{syscall.ECONNRESET, syscall.ECONNREFUSED} {
		fakeverbs.CMNext("rdma_connect",
			fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: -int(no), PrivateData: []byte("no")})
		err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), cm.ConnParam{})
		require.ErrorIs(t, err, cm.ErrRejected)
		require.ErrorIs(t, err, no)
		var rejected *cm.RejectedError
		require.ErrorAs(t, err, &rejected)
		require.Equal(t, "no", string(rejected.PrivateData))
		var ee *cm.EventError
		require.ErrorAs(t, err, &ee)
		require.Equal(t, cm.EventError{Event: cm.EventRejected, Status: -int(no), Err: no}, *ee)
	}
	// On InfiniBand a refusal has a reason and no errno.
	b = newBench(t, "fake0", "192.0.2.1", cm.Config{})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: 28})
	err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), cm.ConnParam{})
	require.ErrorIs(t, err, cm.ErrRejected)
	var no syscall.Errno
	require.NotErrorAs(t, err, &no)
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventRejected)})
	err = b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), cm.ConnParam{})
	require.NotErrorIs(t, err, cm.ErrRejected, "no reason is not the peer's program")
	var ee *cm.EventError
	require.ErrorAs(t, err, &ee)
}
