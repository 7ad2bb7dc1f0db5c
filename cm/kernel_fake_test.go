// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// The tests in this file run over libraries without a device: every event, every failure, and the end of a call in every phase.

// fakes are the two devices: one that follows InfiniBand, one that is like kernel siw.
var fakes = []struct{ name, ip string }{{"fake0", "192.0.2.1"}, {"fake1", "198.51.100.1"}}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// device returns a device by its name.
func device(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	return dev
}

// newQP makes a QP in RESET with what it needs.
func newQP(t *testing.T, vctx *verbs.Context, typ verbs.QPType) *verbs.QP {
	t.Helper()
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pd.Close()) })
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: typ})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, qp.Close()) })
	return qp
}

// bench is what a test on one of them has open.
type bench struct {
	*testing.T
	dev  *verbs.Device
	vctx *verbs.Context
	ln   *cm.Listener
	ip   string
}

func eachFake(t *testing.T, run func(b *bench)) {
	for _, f := range fakes {
		t.Run(f.name, func(t *testing.T) { run(newBench(t, f.name, f.ip, cm.Config{})) })
	}
}

func newBench(t *testing.T, name, ip string, cfg cm.Config) *bench {
	t.Helper()
	fakeverbs.Start(t)
	b := &bench{T: t, dev: device(t, name), ip: ip}
	var err error
	b.vctx, err = b.dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.vctx.Close()) })
	cfg.Context = b.vctx
	b.ln, err = cm.Listen(soon(t), net.JoinHostPort(ip, "0"), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.ln.Close()) })
	return b
}

func (b *bench) iwarp() bool { return b.dev.Info().Transport == verbs.TransportIWARP }

// qp makes a QP in RESET.
func (b *bench) qp(typ verbs.QPType) *verbs.QP {
	b.Helper()
	return newQP(b.T, b.vctx, typ)
}

func (b *bench) resolve(cfg cm.Config) *cm.ID {
	b.Helper()
	cfg.Context = b.vctx
	id, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, id.Close()) })
	return id
}

// pair connects two QPs.
func (b *bench) pair(param cm.ConnParam) (active, passive *cm.ID) {
	b.Helper()
	id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
	done := make(chan error, 1)
	go func() {
		req, err := b.ln.Accept(soon(b.T))
		if err == nil {
			passive, err = req.Accept(soon(b.T), other, cm.ConnParam{})
		}
		done <- err
	}()
	require.NoError(b, id.Connect(soon(b.T), qp, param))
	require.NoError(b, <-done)
	b.Cleanup(func() { require.NoError(b, passive.Close()) })
	return id, passive
}

// last is the newest id of librdmacm in a state.
func last(t *testing.T, state fakeverbs.CMState) (found fakeverbs.CMID) {
	t.Helper()
	for _, id := range fakeverbs.CMIDs() {
		if id.State == state {
			found = id
		}
	}
	require.NotZero(t, found.ID, "an id in state %d", state)
	return found
}

func wait(t *testing.T, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "timed out waiting for "+what)
	}
}

// TestResolveEvents: what an event says is in the error.
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

// TestResolveAgain: the kernel is asked again as long as there is time.
func TestResolveAgain(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	late := fakeverbs.CMEvent{Event: int(cm.EventAddrError), Status: -int(syscall.ETIMEDOUT)}
	fakeverbs.CMNext("rdma_resolve_addr", late)
	fakeverbs.CMNext("rdma_resolve_addr", late)
	b.resolve(cm.Config{})
	require.Equal(t, 3, fakeverbs.Calls("rdma_resolve_addr"))
}

// TestCallsFail: a call that fails is named, with its errno, and leaves nothing.
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

// TestPassiveCallsFail: a failure of the passive side refuses the request.
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
	})
}

// TestConnectEvents: what ends an attempt, in the words of the event.
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
				continue // it has one reason
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

// TestNobodyListens is a refusal on both kinds of devices.
func TestNobodyListens(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventRejected), Status: 8})
	err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), cm.ConnParam{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NotErrorIs(t, err, cm.ErrRejected)
	require.ErrorContains(t, err, "invalid service ID (8)")
}

// TestActiveRises: what fails between the peer's answer and the last word ends the attempt, and the QP with it.
func TestActiveRises(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, call := range []string{"ibv_modify_qp", "rdma_init_qp_attr", "rdma_establish"} {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		require.NoError(t, id.BindQP(qp))
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.BindQP(other))
		nth := map[string]int{"ibv_modify_qp": 3, "rdma_init_qp_attr": 3, "rdma_establish": 1}[call] // behind those of Accept
		fakeverbs.Fail(call, nth, syscall.EIO)
		passive, err := req.Accept(soon(t), other, cm.ConnParam{})
		require.ErrorIs(t, <-connected, syscall.EIO, call)
		require.Equal(t, verbs.QPStateErr, qp.State())
		if err == nil { // the answer was on its way already
			wait(t, passive.Done(), "the end")
			require.NoError(t, passive.Close())
		}
	}
}

// TestParameters: what the caller says is what the library is told.
func TestParameters(t *testing.T) {
	eachFake(t, func(b *bench) {
		active, passive := b.pair(cm.ConnParam{PrivateData: []byte("abc"), InitiatorDepth: 5, ResponderResources: 3, RetryCount: 2, RNRRetryCount: cm.None})
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
	})
}

// TestParametersLeftOut: what the caller does not say is as the comment of ConnParam has it.
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

// TestParametersOutOfRange are refused by their names.
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
	for name, param := range map[string]cm.ConnParam{"RetryCount -2": {RetryCount: -2}, "InitiatorDepth -2": {InitiatorDepth: -2}} {
		err := b.resolve(cm.Config{}).Connect(soon(t), b.qp(0), param)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, b.resolve(cm.Config{}).Connect(soon(t), b.qp(verbs.QPTypeUD), cm.ConnParam{}), verbs.ErrInvalid)
	require.Zero(t, fakeverbs.Calls("rdma_connect"), "nobody was contacted")
	_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx, PortSpace: 77})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Context: b.vctx, PortSpace: 77})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestQPAttributes: the QP gets the depths that were agreed on and the receiver's timer.
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
	})
}

// TestCancelInEveryPhase: a call whose context ends, ends, and leaves nothing.
func TestCancelInEveryPhase(t *testing.T) {
	eachFake(t, func(b *bench) {
		silence := fakeverbs.CMEvent{Event: fakeverbs.NoEvent}
		for _, phase := range []string{"rdma_resolve_addr", "rdma_resolve_route"} {
			fakeverbs.CMNext(phase, silence)
			ctx, cancel := context.WithTimeout(b.Context(), 20*time.Millisecond)
			_, err := cm.Resolve(ctx, b.ln.Addr().String(), cm.Config{Context: b.vctx})
			cancel()
			require.ErrorIs(b, err, context.DeadlineExceeded, phase)
			var ne net.Error
			require.ErrorAs(b, err, &ne)
			require.True(b, ne.Timeout())
		}
		fakeverbs.CMNext("rdma_connect", silence)
		ctx, cancel := context.WithCancel(b.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		require.ErrorIs(b, b.resolve(cm.Config{}).Connect(ctx, b.qp(0), cm.ConnParam{}), context.Canceled)

		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		fakeverbs.CMNext("rdma_accept", silence)
		ctx, cancel = context.WithTimeout(b.Context(), 20*time.Millisecond)
		defer cancel()
		_, err = req.Accept(ctx, other, cm.ConnParam{})
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Equal(b, verbs.QPStateErr, other.State())
		require.Error(b, <-connected)
	})
}

// TestCloseInEveryPhase: Close of the ID ends its call.
func TestCloseInEveryPhase(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		require.NoError(b, id.Close(), "resolved")
		require.ErrorIs(b, id.Connect(soon(b.T), qp, cm.ConnParam{}), verbs.ErrClosed)
		require.ErrorIs(b, id.BindQP(qp), verbs.ErrClosed)

		id = b.resolve(cm.Config{})
		fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(context.Background(), qp, cm.ConnParam{}) }()
		time.Sleep(20 * time.Millisecond)
		require.NoError(b, id.Close(), "connecting")
		require.ErrorIs(b, <-connected, verbs.ErrClosed)
		wait(b.T, id.Done(), "Done")

		active, passive := b.pair(cm.ConnParam{})
		require.NoError(b, active.Close(), "established")
		wait(b.T, passive.Done(), "the peer's Done")
		require.NoError(b, active.Close(), "closed")
	})
}

// TestEndsOfAConnection: who ends it, with what reason, and that both sides answer.
func TestEndsOfAConnection(t *testing.T) {
	for name, end := range map[string]func(b *bench, active *cm.ID, id uint32){
		"Removal": func(b *bench, _ *cm.ID, id uint32) {
			require.True(b, fakeverbs.InjectCM(id, fakeverbs.CMEvent{Event: int(cm.EventDeviceRemoval)}))
		},
		"TimewaitExit": func(b *bench, _ *cm.ID, id uint32) {
			require.True(b, fakeverbs.InjectCM(id, fakeverbs.CMEvent{Event: int(cm.EventTimewaitExit)}))
		},
		"Unreachable": func(b *bench, _ *cm.ID, id uint32) {
			require.True(b, fakeverbs.InjectCM(id, fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: -110}))
		},
		"QPEvent": func(b *bench, active *cm.ID, _ uint32) {
			dev := map[string]int{"fake0": fakeverbs.Fake0, "fake1": fakeverbs.Fake1}[b.dev.Name()]
			fakeverbs.InjectAsync(dev, uint32(verbs.EventQPFatal), active.QP().Num())
		},
		"QPToErr": func(b *bench, active *cm.ID, _ uint32) {
			require.NoError(b, active.QP().Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachFake(t, func(b *bench) {
				active, passive := b.pair(cm.ConnParam{PrivateData: []byte("me")})
				var own, peer uint32
				for _, id := range fakeverbs.CMIDs() {
					if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "me" {
						own, peer = id.ID, id.Peer
					}
				}
				require.True(b, fakeverbs.InjectCM(own, fakeverbs.CMEvent{Event: int(cm.EventAddrChange)}), "means nothing")
				end(b, active, own)
				wait(b.T, active.Done(), "Done")
				wait(b.T, passive.Done(), "the peer's Done")
				require.Error(b, active.Err())
				require.Error(b, passive.Err())
				require.Equal(b, verbs.QPStateErr, active.QP().State())
				require.Equal(b, verbs.QPStateErr, passive.QP().State())
				for _, id := range []uint32{own, peer} {
					if got, ok := fakeverbs.CMIDByNum(id); ok {
						require.NotZero(b, got.Disconnects, "id %d has told the peer", id)
					}
				}
				require.NoError(b, active.Disconnect(), "what has ended can be ended again")
			})
		})
	}
}

// TestBrokenStream: iWARP tells an end that was none of the peer's.
func TestBrokenStream(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{PrivateData: []byte("me")})
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "me" {
			require.True(t, fakeverbs.InjectCM(id.ID, fakeverbs.CMEvent{Event: int(cm.EventDisconnected), Status: -int(syscall.ECONNRESET)}))
		}
	}
	wait(t, active.Done(), "Done")
	require.ErrorIs(t, active.Err(), syscall.ECONNRESET)
	require.NoError(t, passive.Disconnect())
}

// TestPeerDoesNotAnswer: Close waits for a while only.
func TestPeerDoesNotAnswer(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{})
	fakeverbs.CMNext("rdma_disconnect", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
	began := time.Now()
	require.NoError(t, active.Close())
	require.Less(t, time.Since(began), 10*time.Second)
	require.ErrorIs(t, active.Err(), verbs.ErrClosed)
	wait(t, passive.Done(), "the peer's Done")
}

// TestRequestOfAnotherDevice: a wildcard listener of one device does not take requests of another one.
func TestWildcard(t *testing.T) {
	fakeverbs.Start(t)
	vctx, err := device(t, "fake1").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vctx.Close()) })
	other, err := device(t, "fake0").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	ln, err := cm.Listen(soon(t), ":0", cm.Config{Context: vctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, []*verbs.Device{vctx.Device()}, ln.Devices())
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	id, err := cm.Resolve(soon(t), net.JoinHostPort("192.0.2.1", port), cm.Config{Context: other})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, id.Close()) })
	err = id.Connect(soon(t), newQP(t, other, 0), cm.ConnParam{})
	require.ErrorIs(t, err, cm.ErrRejected)
	mine, err := cm.Resolve(soon(t), net.JoinHostPort("198.51.100.1", port), cm.Config{Context: vctx})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mine.Close()) })
	go func() {
		if req, err := ln.Accept(soon(t)); err == nil {
			_ = req.Reject([]byte("seen"))
		}
	}()
	var re *cm.RejectedError
	require.ErrorAs(t, mine.Connect(soon(t), newQP(t, vctx, 0), cm.ConnParam{}), &re)
	require.Equal(t, "seen", string(re.PrivateData[:4]))
}

// TestWrongDevice: the way to an address may be another device's than the configured one's.
func TestWrongDevice(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, call := range []func() error{
		func() error {
			_, err := cm.Resolve(soon(t), "198.51.100.1:7", cm.Config{Context: b.vctx})
			return err
		},
		func() error {
			_, err := cm.Listen(soon(t), "198.51.100.1:0", cm.Config{Context: b.vctx})
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorContains(t, err, "fake1")
		require.ErrorContains(t, err, "fake0")
	}
}

// TestPortTries: kernel siw needs a port that TCP has free too.
func TestPortTries(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	fakeverbs.Fail("rdma_listen", 1, syscall.EADDRINUSE)
	ln, err := cm.Listen(soon(t), "198.51.100.1:0", cm.Config{Context: b.vctx})
	require.NoError(t, err, "another port")
	require.NoError(t, ln.Close())
	fakeverbs.Fail("rdma_listen", 1, syscall.EADDRINUSE)
	_, err = cm.Listen(soon(t), "198.51.100.1:7306", cm.Config{Context: b.vctx})
	require.ErrorIs(t, err, syscall.EADDRINUSE, "the port that was asked for")
}

// TestManyAtOnce: connections that share the event channel do not wait for each other, and one whose application is slow
// keeps nobody.
func TestManyAtOnce(t *testing.T) {
	eachFake(t, func(b *bench) {
		fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
		stuck := b.resolve(cm.Config{})
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func(qp *verbs.QP) { ended <- stuck.Connect(ctx, qp, cm.ConnParam{}) }(b.qp(0))
		for fakeverbs.Calls("rdma_connect") == 0 {
			time.Sleep(time.Millisecond)
		}
		const count = 20
		var wg sync.WaitGroup
		errs := make(chan error, 2*count)
		for range count {
			qp, other := b.qp(0), b.qp(0)
			wg.Go(func() {
				id, err := cm.Resolve(ctx, b.ln.Addr().String(), cm.Config{Context: b.vctx})
				if err == nil {
					err = errors.Join(id.Connect(ctx, qp, cm.ConnParam{}), id.Close())
				}
				errs <- err
			})
			wg.Go(func() {
				req, err := b.ln.Accept(ctx)
				if err == nil {
					var id *cm.ID
					if id, err = req.Accept(ctx, other, cm.ConnParam{}); err == nil {
						<-id.Done()
						err = id.Close()
					}
				}
				errs <- err
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			require.NoError(b, err)
		}
		cancel()
		require.ErrorIs(b, <-ended, context.Canceled)
	})
}

// TestChannelEnds: the event channel lives as long as there are IDs, and no longer.
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

// TestNoChannel: a kernel without a connection manager is no device to Auto.
func TestNoChannel(t *testing.T) {
	fakeverbs.Start(t)
	for _, no := range []syscall.Errno{syscall.ENODEV, syscall.ENOENT, syscall.EPERM} {
		fakeverbs.Fail("rdma_create_event_channel", 1, no)
		_, err := cm.Resolve(soon(t), "192.0.2.1:1", cm.Config{Device: cm.Auto})
		require.ErrorIs(t, err, verbs.ErrNoDevice)
		require.ErrorIs(t, err, no)
		require.ErrorContains(t, err, "192.0.2.1:1")
		require.ErrorContains(t, err, "fake0 fake1")
	}
}

// TestAuto: the way to the address chooses among the kernel's devices, and a listener has them all.
func TestAuto(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() {
		require.NoError(t, device(t, "fake0").CloseShared())
		require.NoError(t, device(t, "fake1").CloseShared())
	})
	ln, err := cm.Listen(soon(t), ":0", cm.Config{Device: cm.Auto})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.Equal(t, []*verbs.Device{device(t, "fake0"), device(t, "fake1")}, ln.Devices())
	require.Contains(t, ln.String(), "fake0 (ibverbs) fake1 (ibverbs)")
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for _, f := range fakes {
		id, err := cm.Resolve(soon(t), net.JoinHostPort(f.ip, port), cm.Config{Device: cm.Auto})
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
	_, err = cm.Resolve(soon(t), "203.0.113.1:1", cm.Config{Device: cm.Auto})
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, "203.0.113.1:1")
}

// TestDatagrams: a UD QP learns how to reach its peer's.
func TestDatagrams(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	id, qp, other := b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}), b.qp(verbs.QPTypeUD), b.qp(verbs.QPTypeUD)
	_, ok := id.Datagram()
	require.False(t, ok)
	accepted := make(chan *cm.ID, 1)
	go func() {
		req, err := b.ln.Accept(soon(t))
		if err != nil {
			accepted <- nil
			return
		}
		passive, _ := req.Accept(soon(t), other, cm.ConnParam{PrivateData: []byte("here")})
		accepted <- passive
	}()
	require.NoError(t, id.Connect(soon(t), qp, cm.ConnParam{}))
	passive := <-accepted
	require.NotNil(t, passive)
	d, ok := id.Datagram()
	require.True(t, ok)
	require.Equal(t, other.Num(), d.QPN)
	require.EqualValues(t, 0x01234567, d.QKey, "RDMA_UDP_QKEY")
	require.Equal(t, "here", string(id.PrivateData()[:4]))
	require.Len(t, id.PrivateData(), 136)
	require.Equal(t, verbs.QPStateRTS, qp.State())
	require.Equal(t, verbs.QPStateRTS, other.State())
	_, ok = passive.Datagram()
	require.False(t, ok, "a request does not tell")
	require.NoError(t, passive.Close())
	require.NoError(t, id.Disconnect())
	wait(t, id.Done(), "Done")
	require.Equal(t, verbs.QPStateRTS, qp.State(), "it may have other correspondents")

	// The same QP once more, and a refusal.
	id = b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: 2, PrivateData: []byte("no")})
	err := id.Connect(soon(t), qp, cm.ConnParam{})
	require.ErrorIs(t, err, cm.ErrRejected)
	id = b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP})
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventUnreachable), Status: 1})
	err = id.Connect(soon(t), qp, cm.ConnParam{})
	require.NotErrorIs(t, err, cm.ErrRejected)
	require.ErrorContains(t, err, "service ID not supported (1)")
	require.ErrorIs(t, b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}).Connect(soon(t), b.qp(0), cm.ConnParam{}), verbs.ErrInvalid)
}

// TestNoDatagrams: iWARP has none.
func TestNoDatagrams(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	cfg := cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP}
	_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cfg)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = cm.Listen(soon(t), "198.51.100.1:0", cfg)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = b.resolve(cm.Config{}).JoinMulticast(soon(t), b.qp(0), netip.MustParseAddr("239.1.2.3"))
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestRequestOfAPeerThatLeft: what the kernel says of a request whose peer has gone ends it.
func TestRequestOfAPeerThatLeft(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		fakeverbs.Fail("rdma_init_qp_attr", 1, syscall.EINVAL)
		_, err = req.Accept(soon(b.T), other, cm.ConnParam{})
		require.ErrorIs(b, err, syscall.EINVAL)
		require.ErrorIs(b, <-connected, cm.ErrRejected)
		require.ErrorIs(b, req.Reject(nil), verbs.ErrInvalid, "answered")
	})
}

// TestMulticast joins and leaves, also when the ID is closed.
func TestMulticast(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	group := netip.MustParseAddr("239.1.2.3")
	cfg := cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP}
	id, err := cm.Resolve(soon(t), "192.0.2.1:7", cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	qp := b.qp(verbs.QPTypeUD)
	m, err := id.JoinMulticast(soon(t), qp, group)
	require.NoError(t, err)
	require.Equal(t, group, m.Group())
	require.Equal(t, verbs.QPStateRTS, qp.State())
	require.Equal(t, 1, fakeverbs.Calls("ibv_attach_mcast"))
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.NoError(t, m.Leave())
	require.NoError(t, m.Leave())
	require.Equal(t, 1, fakeverbs.Calls("ibv_detach_mcast"))
	require.Equal(t, 1, fakeverbs.Calls("rdma_leave_multicast"))

	fakeverbs.CMNext("rdma_join_multicast", fakeverbs.CMEvent{Event: int(cm.EventMulticastError), Status: -int(syscall.EINVAL)})
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, syscall.EINVAL)
	fakeverbs.CMNext("rdma_join_multicast", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = id.JoinMulticast(ctx, qp, group)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = id.JoinMulticast(soon(t), nil, group)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.Equal(t, 1, strings.Count(err.Error(), "JoinMulticast"), err.Error())
	_, err = id.JoinMulticast(soon(t), qp, netip.MustParseAddr("192.0.2.1"))
	require.ErrorIs(t, err, verbs.ErrInvalid)

	m, err = id.JoinMulticast(soon(t), qp, group)
	require.NoError(t, err)
	require.NoError(t, id.Close())
	require.NoError(t, m.Leave(), "the ID has left it")
	require.Equal(t, fakeverbs.Calls("ibv_attach_mcast"), fakeverbs.Calls("ibv_detach_mcast"))
	_, err = id.JoinMulticast(soon(t), qp, group)
	require.ErrorIs(t, err, verbs.ErrClosed)
}

// TestUnfaked: nothing of what this package calls is the libraries'.
func TestUnfaked(t *testing.T) {
	left, err := fakeverbs.Unfaked()
	require.NoError(t, err)
	require.Empty(t, left)
}
