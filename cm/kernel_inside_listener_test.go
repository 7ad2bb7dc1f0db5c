// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// insideListener listens on fake0.
func insideListener(t *testing.T, vctx *verbs.Context) *kernelListener {
	t.Helper()
	ln, err := listenKernel(t.Context(), "192.0.2.1:0", Config{PortSpace: PortSpaceTCP, Backlog: 8}, vctx)
	require.NoError(t, err)
	l := ln.(*kernelListener)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// asking is a request that the test answers itself.
func asking(t *testing.T, l *kernelListener) rawEvent {
	t.Helper()
	end, err := newEndpoint(PortSpaceTCP)
	require.NoError(t, err)
	t.Cleanup(end.destroy)
	require.NoError(t, end.call(func(id rawID) error { return id.bind(netip.AddrPortFrom(l.local.Addr(), 0)) }))
	return rawEvent{event: EventConnectRequest, end: end}
}

// TestOfferAfterClose: a request that the dispatcher offers to a closed listener is refused.
// Otherwise it would never be answered.
func TestOfferAfterClose(t *testing.T) {
	l := insideListener(t, insideContext(t))
	taken, _ := l.offer(asking(t, l))
	require.True(t, taken)
	r, shut := l.take()
	require.NotNil(t, r)
	require.False(t, shut)
	taken, _ = l.offer(asking(t, l))
	require.True(t, taken)
	ev := asking(t, l)
	require.NoError(t, l.Close())
	taken, _ = l.offer(ev)
	require.False(t, taken)
	_, err := l.Accept(t.Context())
	require.ErrorIs(t, err, verbs.ErrClosed, "and not the request that Close has refused")
	require.NoError(t, l.Close(), "again")
}

// TestEveryAcceptIsWoken: two requests that arrive at once wake two calls of Accept.
func TestEveryAcceptIsWoken(t *testing.T) {
	l := insideListener(t, insideContext(t))
	const n = 2
	got := make(chan error, n)
	for range n {
		go func() {
			_, err := l.Accept(t.Context())
			got <- err
		}()
	}
	asleep.Until(t, n, "cm.(*kernelListener).Accept", "cm.TestEveryAcceptIsWoken")
	l.mu.Lock()
	for range n {
		l.waiting = append(l.waiting, &kernelRequest{end: asking(t, l).end, ps: l.ps, device: "fake0", vctx: l.vctx})
	}
	l.wakeLocked() // both arrive before a call of Accept receives the token
	l.mu.Unlock()
	for range n {
		require.NoError(t, <-got)
	}
}

// TestAllIDsAreForgotten: the channel retains nothing of freed IDs, and its goroutine sleeps while
// there are no events.
func TestAllIDsAreForgotten(t *testing.T) {
	vctx := insideContext(t)
	l := insideListener(t, vctx)
	id, err := Resolve(t.Context(), l.Addr().String(), Config{Context: vctx})
	require.NoError(t, err)
	require.NoError(t, id.Close())
	ch := shared.ch
	ch.mu.Lock()
	require.Len(t, ch.ends, 1)
	ch.mu.Unlock()
	asleep.Until(t, 1, "eventfd.(*File).Wait", "cm.(*channel).dispatch")

	end, err := newEndpoint(PortSpaceTCP)
	require.NoError(t, err)
	end.destroy()
	end.destroy()
	require.ErrorIs(t, end.call(rawID.disconnect), verbs.ErrClosed)
	require.Same(t, ch, shared.ch, "the listener has it still")
}

// TestRefusalIsTheLast: the dispatcher refuses a request after everything else is closed, and the
// channel is freed.
func TestRefusalIsTheLast(t *testing.T) {
	vctx := insideContext(t)
	t.Cleanup(fakeverbs.Release)
	ln, err := Listen(t.Context(), "192.0.2.1:0", Config{Context: vctx, Backlog: 1})
	require.NoError(t, err)
	l := ln.p.(*kernelListener)
	l.backlog = 0 // every request is one too many
	id, err := Resolve(t.Context(), ln.Addr().String(), Config{Context: vctx})
	require.NoError(t, err)
	qp := insideQP(t, vctx, verbs.QPTypeRC)
	fakeverbs.Hold("rdma_reject")
	connected := make(chan error, 1)
	go func() { connected <- id.Connect(t.Context(), qp, ConnParam{}) }()
	until(t, fakeverbs.Holding)
	require.NoError(t, id.Close())
	require.ErrorIs(t, <-connected, verbs.ErrClosed)
	require.NoError(t, ln.Close())
	require.Equal(t, 1, fakeverbs.Live()["event channel"])
	fakeverbs.Release()
	until(t, func() bool { return fakeverbs.Live()["event channel"] == 0 })
}

// TestEventOfAnIDThatIsGone is dropped.
func TestEventOfAnIDThatIsGone(t *testing.T) {
	vctx := insideContext(t)
	t.Cleanup(fakeverbs.Release)
	l := insideListener(t, vctx)
	id, err := Resolve(t.Context(), l.Addr().String(), Config{Context: vctx})
	require.NoError(t, err)
	ids := fakeverbs.CMIDs()
	fakeverbs.Hold("rdma_destroy_id")
	closed := make(chan error, 1)
	go func() { closed <- id.Close() }()
	until(t, fakeverbs.Holding) // the ID still exists, but not its endpoint
	taken := fakeverbs.Calls("rdma_ack_cm_event")
	require.True(t, fakeverbs.InjectCM(ids[len(ids)-1].ID, fakeverbs.CMEvent{Event: int(EventAddrChange)}))
	until(t, func() bool { return fakeverbs.Calls("rdma_ack_cm_event") > taken })
	fakeverbs.Release()
	require.NoError(t, <-closed)
	other, err := Resolve(t.Context(), l.Addr().String(), Config{Context: vctx})
	require.NoError(t, err, "the dispatcher goes on")
	require.NoError(t, other.Close())
}

// TestZonesByNumber: a zone without a name is a number, in decimal and of 32 bits.
func TestZonesByNumber(t *testing.T) {
	n, err := scopeOf("12")
	require.NoError(t, err)
	require.EqualValues(t, 12, n)
	n, err = scopeOf("4294967295")
	require.NoError(t, err)
	require.EqualValues(t, 1<<32-1, n)
	_, err = scopeOf("4294967296")
	require.Error(t, err)
	require.Equal(t, "1000000000", zoneOf(1_000_000_000), "of an interface that is gone")
}

// TestErrnoWithoutAName: such an errno is reported by its text alone.
func TestErrnoWithoutAName(t *testing.T) {
	require.EqualError(t, callError("rdma_connect", "", syscall.Errno(4000)), "rdma_connect: errno 4000")
	require.EqualError(t, callError("rdma_connect", "fake0", errors.New("no")), "rdma_connect on fake0: no")
}

// TestDeviceNotListed: the connection manager can know a device that libibverbs does not.
func TestDeviceNotListed(t *testing.T) {
	insideContext(t)
	_, err := kernelContext(nil, "fake7", "the request is")
	require.ErrorIs(t, err, verbs.ErrNoDevice)
	require.ErrorContains(t, err, `the request is of "fake7", which libibverbs does not list`)
}
