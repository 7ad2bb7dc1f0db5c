// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestCancelInEveryPhase: a call whose context ends, ends, and leaves nothing.
func TestCancelInEveryPhase(t *testing.T) {
	eachFake(t, func(b *bench) {
		silence := fakeverbs.CMEvent{Event: fakeverbs.NoEvent}
		for _, phase := range []string{"rdma_resolve_addr", "rdma_resolve_route"} {
			fakeverbs.CMNext(phase, silence)
			_, err := cm.Resolve(b.expiresWhenCalled(phase), b.ln.Addr().String(), cm.Config{Context: b.vctx})
			require.ErrorIs(b, err, context.DeadlineExceeded, phase)
			var ne net.Error
			require.ErrorAs(b, err, &ne)
			require.True(b, ne.Timeout())
		}
		fakeverbs.CMNext("rdma_connect", silence)
		id, qp := b.resolve(cm.Config{}), b.qp(0)
		require.ErrorIs(b, id.Connect(b.untilCalled("rdma_connect"), qp, cm.ConnParam{}), context.Canceled)

		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		fakeverbs.CMNext("rdma_accept", silence)
		_, err = req.Accept(b.expiresWhenCalled("rdma_accept"), other, cm.ConnParam{})
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
		called := b.untilCalled("rdma_connect")
		go func() { connected <- id.Connect(context.Background(), qp, cm.ConnParam{}) }()
		wait(b.T, called.Done(), "the call")
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
