// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// The errors for a local port that the kernel's TCP stack has in use.
var portTaken = []syscall.Errno{syscall.EADDRINUSE, syscall.EADDRNOTAVAIL}

// connect connects qp through a new ID to a peer that accepts. After an error, the peer was not
// contacted.
func (b *bench) connect(ctx context.Context, qp *verbs.QP, cfg cm.Config) (*cm.ID, error) {
	b.Helper()
	id := b.resolve(cfg)
	listening, cancel := context.WithCancel(soon(b.T))
	accepted := make(chan error, 1)
	go func() {
		req, err := b.ln.Accept(listening)
		if err == nil {
			var passive *cm.ID
			if passive, err = req.Accept(soon(b.T), b.qp(0), cm.ConnParam{}); err == nil {
				b.Cleanup(func() { require.NoError(b, passive.Close()) })
			}
		}
		accepted <- err
	}()
	err := id.Connect(ctx, qp, cm.ConnParam{})
	if err != nil {
		cancel()
		require.ErrorIs(b, b.outcome(accepted), context.Canceled)
		return id, err
	}
	require.NoError(b, b.outcome(accepted))
	cancel()
	return id, nil
}

// TestConnectPortTaken: if the local port that librdmacm selected is in use in the kernel's TCP
// stack, Connect tries others, with the caller's QP, which may have posted receives.
func TestConnectPortTaken(t *testing.T) {
	eachFake(t, func(b *bench) {
		ids := func() int { return fakeverbs.Live()["id"] }
		for _, errno := range portTaken {
			qp, before := b.qp(0), fakeverbs.Calls("rdma_connect")
			fakeverbs.Fail("rdma_connect", 1, errno)
			fakeverbs.Fail("rdma_connect", 2, errno)
			has := ids()
			id, err := b.connect(soon(b.T), qp, cm.Config{})
			require.NoError(b, err)
			require.Equal(b, before+3, fakeverbs.Calls("rdma_connect"))
			require.Equal(b, has+2, ids(), "one for each side")
			require.Equal(b, b.idOf(qp).SrcPort, id.LocalAddr().(interface{ Port() uint16 }).Port())
			require.NoError(b, id.Disconnect())
		}
		for _, errno := range portTaken { // as an event
			qp, before := b.qp(0), fakeverbs.Calls("rdma_connect")
			fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(cm.EventConnectError), Status: -int(errno)})
			_, err := b.connect(soon(b.T), qp, cm.Config{})
			require.NoError(b, err)
			require.Equal(b, before+2, fakeverbs.Calls("rdma_connect"))
		}
	})
}

// TestConnectPortsTaken: after eight ports Connect gives up, and leaves the QP in INIT.
func TestConnectPortsTaken(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, errno := range portTaken {
			qp, before := b.qp(0), fakeverbs.Calls("rdma_connect")
			for nth := range 8 {
				fakeverbs.Fail("rdma_connect", nth+1, errno)
			}
			_, err := b.connect(soon(b.T), qp, cm.Config{})
			require.ErrorIs(b, err, errno)
			require.ErrorContains(b, err, "rdma_connect")
			require.Equal(b, before+8, fakeverbs.Calls("rdma_connect"))
			require.Equal(b, verbs.QPStateInit, qp.State())
			_, err = b.connect(soon(b.T), qp, cm.Config{})
			require.NoError(b, err, "the QP can be used again")
		}
	})
}

// TestConnectOtherPortFails: an error of the new ID ends Connect, and the QP is still in INIT.
func TestConnectOtherPortFails(t *testing.T) {
	eachFake(t, func(b *bench) {
		for _, call := range []string{"rdma_create_id", "rdma_resolve_addr", "rdma_resolve_route"} {
			qp, before := b.qp(0), fakeverbs.Calls("rdma_connect")
			fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
			fakeverbs.Fail(call, 2, syscall.ENOMEM)
			_, err := b.connect(soon(b.T), qp, cm.Config{})
			require.ErrorIs(b, err, syscall.ENOMEM)
			require.ErrorContains(b, err, call)
			require.Equal(b, before+1, fakeverbs.Calls("rdma_connect"))
			require.Equal(b, verbs.QPStateInit, qp.State())
		}
		// The context is done while another port is being looked for.
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
		fakeverbs.CMNext("rdma_resolve_addr", silence)
		require.ErrorIs(b, id.Connect(b.untilCalled("rdma_resolve_addr"), qp, cm.ConnParam{}), context.Canceled)
		require.Equal(b, verbs.QPStateInit, qp.State())
		// It is done during a call that fails.
		b.Cleanup(fakeverbs.Release)
		id = b.resolve(cm.Config{})
		fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
		fakeverbs.Fail("rdma_resolve_route", 1, syscall.ENOMEM)
		fakeverbs.Hold("rdma_resolve_route")
		ctx, cancel := context.WithCancel(soon(b.T))
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(ctx, qp, cm.ConnParam{}) }()
		b.until("rdma_resolve_route waits", fakeverbs.Holding)
		cancel()
		fakeverbs.Release()
		require.ErrorIs(b, b.outcome(connected), context.Canceled)
	})
}

// TestConnectNoOtherPort: there is only one attempt if another port is not wanted or would not
// help.
func TestConnectNoOtherPort(t *testing.T) {
	eachFake(t, func(b *bench) {
		once := func(errno syscall.Errno, connect func() error) {
			b.Helper()
			before := fakeverbs.Calls("rdma_connect")
			err := connect()
			require.ErrorIs(b, err, errno)
			require.ErrorContains(b, err, "rdma_connect")
			require.Equal(b, before+1, fakeverbs.Calls("rdma_connect"))
		}
		with := func(cfg cm.Config) func() error {
			return func() error {
				_, err := b.connect(soon(b.T), b.qp(0), cfg)
				return err
			}
		}
		fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
		once(syscall.EADDRINUSE, with(cm.Config{Source: netip.MustParseAddrPort(b.ip + ":4791")}))
		fakeverbs.Fail("rdma_connect", 1, syscall.ECONNREFUSED)
		once(syscall.ECONNREFUSED, with(cm.Config{}))
		if !b.iwarp() { // a datagram ID may be a member of multicast groups
			fakeverbs.Fail("rdma_connect", 1, syscall.EADDRINUSE)
			once(syscall.EADDRINUSE, func() error {
				return b.resolve(cm.Config{PortSpace: cm.PortSpaceUDP}).Connect(soon(b.T), b.qp(verbs.QPTypeUD),
					cm.ConnParam{})
			})
		}
		fakeverbs.Fail("rdma_resolve_addr", 1, syscall.EADDRNOTAVAIL)
		before := fakeverbs.Calls("rdma_resolve_addr")
		_, err := cm.Resolve(soon(b.T), b.ln.Addr().String(), cm.Config{Context: b.vctx})
		require.ErrorIs(b, err, syscall.EADDRNOTAVAIL)
		require.Equal(b, before+1, fakeverbs.Calls("rdma_resolve_addr"))
	})
}

// TestConnectPortTakenQPFailed: a QP that has left INIT is not connected again.
func TestConnectPortTakenQPFailed(t *testing.T) {
	eachFake(t, func(b *bench) {
		attempt := func() error {
			id, qp, before := b.resolve(cm.Config{}), b.qp(0), fakeverbs.Calls("rdma_connect")
			fakeverbs.CMNext("rdma_connect", silence)
			called := b.untilCalled("rdma_connect")
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
			wait(b.T, called.Done(), "the call")
			require.NoError(b, qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
			taken := fakeverbs.CMEvent{Event: int(cm.EventConnectError), Status: -int(syscall.EADDRINUSE)}
			require.True(b, fakeverbs.InjectCM(last(b.T, fakeverbs.CMConnecting).ID, taken))
			err := b.outcome(connected)
			require.Equal(b, before+1, fakeverbs.Calls("rdma_connect"))
			require.Equal(b, verbs.QPStateErr, qp.State())
			return err
		}
		for range 20 { // see TestRefusalBehindFailure
			if err := attempt(); !errors.Is(err, verbs.ErrClosed) {
				require.ErrorIs(b, err, syscall.EADDRINUSE)
				return
			}
		}
		require.Fail(b, "no event was seen")
	})
}
