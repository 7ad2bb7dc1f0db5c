// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestOptionsOfIDs: an ID gets the options of its Config and no others, and an accepted request
// inherits the timeout of its listener.
func TestOptionsOfIDs(t *testing.T) {
	all := cm.Config{AckTimeout: 17, ReuseAddr: true}
	b := newBench(t, "fake0", "192.0.2.1", all)
	listening := last(t, fakeverbs.CMListening)
	require.EqualValues(t, 17, listening.AckTimeout)
	require.True(t, listening.ReuseAddr)
	b.resolve(all)
	id := last(t, fakeverbs.CMRouteResolved)
	require.EqualValues(t, 17, id.AckTimeout)
	require.True(t, id.ReuseAddr)
	b.resolve(cm.Config{})
	id = last(t, fakeverbs.CMRouteResolved)
	require.Zero(t, id.AckTimeout)
	require.False(t, id.ReuseAddr)

	b.pair(cm.ConnParam{})
	var timeouts []uint8
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMConnected {
			timeouts = append(timeouts, id.AckTimeout)
		}
	}
	require.ElementsMatch(t, []uint8{0, 17}, timeouts, "the active side, and the side of the listener")

	_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cm.Config{Context: b.vctx, AckTimeout: 32})
	require.ErrorIs(t, err, verbs.ErrLimit)
	for option, cfg := range map[string]cm.Config{"ACK_TIMEOUT 17": {AckTimeout: 17}, "REUSEADDR": {ReuseAddr: true}} {
		cfg.Context = b.vctx
		fakeverbs.Fail("rdma_set_option", 1, syscall.ENOSYS)
		_, err := cm.Resolve(soon(t), b.ln.Addr().String(), cfg)
		require.ErrorIs(t, err, syscall.ENOSYS)
		require.ErrorContains(t, err, option)
	}
}

// TestAFOnly: a listener on "::" accepts one family or both, as configured; the empty host has one
// ID per family.
func TestAFOnly(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for _, only := range []bool{false, true} {
		ln, err := cm.Listen(soon(t), "[::]:0", cm.Config{Context: b.vctx, AFOnly: only})
		require.NoError(t, err)
		require.Equal(t, only, last(t, fakeverbs.CMListening).AFOnly)
		require.NoError(t, ln.Close())
	}
	_, err := cm.Listen(soon(t), ":0", cm.Config{Context: b.vctx, AFOnly: true})
	require.ErrorIs(t, err, verbs.ErrInvalid)
}

// TestPortNum: an ID and a request report the device port.
func TestPortNum(t *testing.T) {
	eachFake(t, func(b *bench) {
		active, passive := b.pair(cm.ConnParam{})
		require.Equal(b, 1, active.PortNum())
		require.Equal(b, 1, passive.PortNum())
		id := b.resolve(cm.Config{})
		require.Equal(b, 1, id.PortNum())
		done := make(chan error, 1)
		go func() { done <- id.Connect(soon(b.T), b.qp(0), cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		require.Equal(b, 1, req.PortNum())
		require.NoError(b, req.Reject(nil))
		require.Error(b, <-done)
		require.Equal(b, 1, req.PortNum(), "also when it has been answered")
	})
}

// TestGroupWithoutPort: a multicast group has no ports, so its address may have port 0; a peer's
// may not.
func TestGroupWithoutPort(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{PortSpace: cm.PortSpaceUDP})
	cfg := cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP}
	for _, group := range []string{"239.1.2.3", "ff0e::77"} {
		id, err := cm.Resolve(soon(t), net.JoinHostPort(group, "0"), cfg)
		require.NoError(t, err)
		_, err = id.JoinMulticast(soon(t), b.qp(verbs.QPTypeUD), netip.MustParseAddr(group))
		require.NoError(t, err)
		require.NoError(t, id.Close())
	}
	_, err := cm.Resolve(soon(t), "192.0.2.1:0", cfg)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "port 0")
}

// TestAbortKernel: nothing waits for the peer's answer, whether Abort comes first or during a
// Close, or a context ends the wait.
func TestAbortKernel(t *testing.T) {
	eachFake(t, func(b *bench) {
		silent := func() *cm.ID {
			active, _ := b.pair(cm.ConnParam{})
			fakeverbs.CMNext("rdma_disconnect", fakeverbs.CMEvent{Event: fakeverbs.NoEvent})
			return active
		}
		id := silent()
		began := time.Now()
		require.NoError(b, id.Abort())
		require.ErrorIs(b, id.Err(), verbs.ErrClosed)
		require.NoError(b, id.Abort())

		id = silent()
		closed := make(chan error, 1)
		go func() { closed <- id.Close() }()
		wait(b.T, id.Done(), "the flush")
		require.NoError(b, id.Abort())
		require.NoError(b, <-closed)

		if b.iwarp() {
			return // there the end of the stream is the answer
		}
		id = silent()
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Millisecond)
		defer cancel()
		require.ErrorIs(b, id.CloseContext(ctx), context.DeadlineExceeded)
		require.NoError(b, id.Close())
		require.Less(b, time.Since(began), 3*time.Second, "the time that one of them waits without")
	})
}
