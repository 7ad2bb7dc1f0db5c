// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestCancelInEveryPhase: a call returns when its context is done, and leaves nothing behind.
func TestCancelInEveryPhase(t *testing.T) {
	eachFake(t, func(b *bench) {
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

// TestCloseInEveryPhase: Close of the ID cancels its call.
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

// TestEndsOfAConnection: either side can end a connection; both have the reason, and both answer.
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
			dev := map[string]int{"fake0": fakeverbs.Fake0, "fake1": fakeverbs.Fake1}[b.name]
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
				require.True(b, fakeverbs.InjectCM(own, fakeverbs.CMEvent{Event: int(cm.EventAddrChange)}),
					"means nothing")
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

// TestBrokenStream: on iWARP, an end that the peer did not request has its own error.
func TestBrokenStream(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{PrivateData: []byte("me")})
	for _, id := range fakeverbs.CMIDs() {
		if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "me" {
			require.True(t, fakeverbs.InjectCM(id.ID,
				fakeverbs.CMEvent{Event: int(cm.EventDisconnected), Status: -int(syscall.ECONNRESET)}))
		}
	}
	wait(t, active.Done(), "Done")
	require.ErrorIs(t, active.Err(), syscall.ECONNRESET)
	require.NoError(t, passive.Disconnect())
}

// TestDoneIsDrained: a device that follows InfiniBand may flush a QP late. The end of a connection
// waits for that.
func TestDoneIsDrained(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{})
	ids := []uint64{3, 1, 4}
	for _, id := range []*cm.ID{active, passive} {
		for _, n := range ids {
			_, err := id.QP().PostRecv([]verbs.RecvWR{{ID: n}})
			require.NoError(t, err)
		}
	}
	fakeverbs.LateFlush(true)
	before := fakeverbs.Calls("ibv_post_recv")
	disconnected := make(chan error, 2)
	for range 2 {
		go func() { disconnected <- active.Disconnect() }()
	}
	// Each QP gets a marker that the device flushes last.
	b.until("the drains", func() bool { return fakeverbs.Calls("ibv_post_recv") == before+2 })
	for _, id := range []*cm.ID{active, passive} {
		select {
		case <-disconnected:
			require.Fail(t, "Disconnect has returned before the flush")
		case <-id.Done():
			require.Fail(t, "Done is closed before the flush")
		default:
		}
		require.Equal(t, 5, fakeverbs.Flush(id.QP().Num()), "three receives and two marks")
		wait(t, id.Done(), "Done")
		wcs := make([]verbs.WC, 8)
		n, err := id.QP().RecvCQ().Poll(wcs)
		require.NoError(t, err)
		var flushed []uint64
		for _, wc := range wcs[:n] {
			require.Equal(t, verbs.WCWRFlushErr, wc.Status)
			flushed = append(flushed, wc.ID)
		}
		require.Equal(t, ids, flushed)
		if id == active {
			require.NoError(t, b.outcome(disconnected))
			require.NoError(t, b.outcome(disconnected))
		}
	}
}

// TestOrderOfTheEnd: by the time the peer is notified, the QP has failed with the reason, and its
// requests are flushed.
func TestOrderOfTheEnd(t *testing.T) {
	eachFake(t, func(b *bench) {
		b.Cleanup(fakeverbs.Release)
		active, passive := b.pair(cm.ConnParam{})
		_, err := active.QP().PostRecv([]verbs.RecvWR{{ID: 7}})
		require.NoError(b, err)
		fakeverbs.Hold("rdma_disconnect")
		disconnected := make(chan error, 1)
		go func() { disconnected <- active.Disconnect() }()
		b.until("rdma_disconnect", fakeverbs.Holding)
		require.ErrorIs(b, active.Err(), verbs.ErrClosed)
		require.Equal(b, verbs.QPStateErr, active.QP().State())
		require.ErrorIs(b, active.QP().Err(), verbs.ErrClosed)
		wcs := make([]verbs.WC, 2)
		n, err := active.QP().RecvCQ().Poll(wcs)
		require.NoError(b, err)
		require.Equal(b, 1, n)
		require.Equal(b, verbs.WCWRFlushErr, wcs[0].Status)
		fakeverbs.Release()
		require.NoError(b, <-disconnected)
		wait(b.T, active.Done(), "Done")
		wait(b.T, passive.Done(), "the peer's Done")
		require.ErrorIs(b, passive.Err(), io.EOF)
		require.ErrorIs(b, passive.QP().Err(), io.EOF)
	})
}

// failedOf is closed when a QP has failed.
func failedOf(t *testing.T, qp *verbs.QP) <-chan struct{} {
	t.Helper()
	w, ok := verbs.Ability[verbs.ProviderQPWatcher](qp.Provider())
	require.True(t, ok)
	return w.Failed()
}

// TestFlushIsNoReason: kernel siw flushes when the stream ends. The connection waits for the event
// with the reason, but not forever.
func TestFlushIsNoReason(t *testing.T) {
	for name, late := range map[string]bool{"the event comes": false, "no event comes": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
			t.Cleanup(fakeverbs.Release)
			active, passive := b.pair(cm.ConnParam{})
			_, err := active.QP().PostRecv([]verbs.RecvWR{{ID: 1}})
			require.NoError(t, err)
			fakeverbs.Hold("rdma_get_cm_event") // events are late
			require.NoError(t, passive.Disconnect())
			n, err := active.QP().RecvCQ().Poll(make([]verbs.WC, 1))
			require.NoError(t, err)
			require.Equal(t, 1, n, "the flush")
			wait(t, failedOf(t, active.QP()), "the failure of the QP")
			if !late {
				fakeverbs.Release()
			}
			wait(t, active.Done(), "Done")
			fakeverbs.Release()
			if late {
				require.ErrorIs(t, active.Err(), verbs.WCWRFlushErr)
			} else {
				require.ErrorIs(t, active.Err(), io.EOF)
			}
		})
	}
}

// TestInitiatorIsTold: kernel siw can withhold the first answer from the active side until its QP
// sends again.
func TestInitiatorIsTold(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	active, _ := b.pair(cm.ConnParam{})
	b.until("a message of its own", func() bool { return fakeverbs.Calls("ibv_post_send") > 0 })
	require.EqualValues(t, active.QP().Num(), fakeverbs.Args("ibv_post_send")[0])
	require.Equal(t, 1, fakeverbs.Calls("ibv_post_send"), "none of the other side")
}

// TestBothDisconnect: if both sides request the end at the same time, both requests are answered.
func TestBothDisconnect(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{})
	peer := b.idOf(passive.QP()).ID
	fakeverbs.CMNext("rdma_disconnect", silence) // in flight
	require.NoError(t, active.Disconnect())
	require.NoError(t, passive.Disconnect())
	b.until("the answer", func() bool {
		id, ok := fakeverbs.CMIDByNum(peer)
		return ok && id.State == fakeverbs.CMEnded
	})
}

// TestErrOfAFlush: once a failed completion has been polled, Err returns the reason, even if its
// event arrives later.
func TestErrOfAFlush(t *testing.T) {
	for status, want := range map[verbs.WCStatus]map[string]error{
		verbs.WCWRFlushErr: {"fake0": verbs.WCWRFlushErr, "fake1": io.EOF},
		verbs.WCLocLenErr:  {"fake0": verbs.WCLocLenErr, "fake1": verbs.WCLocLenErr},
	} {
		t.Run(status.String(), func(t *testing.T) {
			eachFake(t, func(b *bench) {
				active, passive := b.pair(cm.ConnParam{PrivateData: []byte("me")})
				require.NoError(b, active.Err())
				qp := active.QP()
				_, err := qp.PostRecv([]verbs.RecvWR{{ID: 7}})
				require.NoError(b, err)
				posted := fakeverbs.LastPosted()
				require.True(b, fakeverbs.InjectWC(qp.Num(), true,
					fakeverbs.WC{WRID: posted[0].WRID, Status: uint32(status)}))
				var wcs [1]verbs.WC
				n, err := qp.RecvCQ().Poll(wcs[:])
				require.NoError(b, err)
				require.Equal(b, 1, n)
				require.Equal(b, status, wcs[0].Status)
				require.ErrorIs(b, active.Err(), want[b.name])
				for _, id := range fakeverbs.CMIDs() {
					if id.State == fakeverbs.CMConnected && string(id.Param.PrivateData) == "me" {
						fakeverbs.InjectCM(id.ID,
							fakeverbs.CMEvent{Event: int(cm.EventDisconnected), Status: -int(syscall.ECONNRESET)})
					}
				}
				wait(b.T, active.Done(), "Done")
				require.ErrorIs(b, active.Err(), want[b.name], "the first reason stays")
				require.NoError(b, passive.Disconnect())
			})
		})
	}
}

// TestErrOfAFlushAtThePassiveSide is TestErrOfAFlush for the passive side.
func TestErrOfAFlushAtThePassiveSide(t *testing.T) {
	b := newBench(t, "fake1", "198.51.100.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{})
	qp := passive.QP()
	_, err := qp.PostRecv([]verbs.RecvWR{{ID: 7}})
	require.NoError(t, err)
	posted := fakeverbs.LastPosted()
	require.True(t, fakeverbs.InjectWC(qp.Num(), true,
		fakeverbs.WC{WRID: posted[0].WRID, Status: uint32(verbs.WCWRFlushErr)}))
	var wcs [1]verbs.WC
	n, err := qp.RecvCQ().Poll(wcs[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.ErrorIs(t, passive.Err(), io.EOF)
	require.NoError(t, active.Disconnect())
	wait(t, passive.Done(), "Done")
}

// TestQPIsClosed: a connection ends when its QP is closed.
func TestQPIsClosed(t *testing.T) {
	eachFake(t, func(b *bench) {
		active, passive := b.pair(cm.ConnParam{})
		require.NoError(b, active.QP().Close())
		wait(b.T, active.Done(), "Done")
		wait(b.T, passive.Done(), "the peer's Done")
		require.ErrorIs(b, active.Err(), verbs.ErrClosed)
		require.ErrorIs(b, passive.Err(), io.EOF)
	})
}

// TestPeerDoesNotAnswer: Close waits only for a limited time.
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

// TestRequestOfAPeerThatLeft: the kernel's event for a departed peer ends its request.
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
