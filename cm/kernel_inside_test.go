// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

import (
	"context"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// Tests of behavior that shows outside the package only in time or memory.

// insideQP makes a QP on fake0.
func insideQP(t *testing.T, vctx *verbs.Context, typ verbs.QPType) *verbs.QP {
	t.Helper()
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Type: typ})
	require.NoError(t, err)
	return qp
}

func insideContext(t *testing.T) *verbs.Context {
	t.Helper()
	return insideContextOf(t, "fake0")
}

func insideContextOf(t *testing.T, device string) *verbs.Context {
	t.Helper()
	fakeverbs.Start(t)
	dev, err := verbs.DeviceByName(device)
	require.NoError(t, err)
	vctx, err := dev.Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vctx.CloseAll()) })
	return vctx
}

// accepts accepts the next request with a QP. The channel receives the ID, nil if that fails.
func accepts(ctx context.Context, ln *Listener, qp *verbs.QP) <-chan *ID {
	passive := make(chan *ID, 1)
	go func() {
		var p *ID
		if req, err := ln.Accept(ctx); err == nil {
			p, _ = req.Accept(ctx, qp, ConnParam{})
		}
		passive <- p
	}()
	return passive
}

// until waits for a condition.
func until(t *testing.T, met func() bool) {
	t.Helper()
	require.Eventually(t, met, 20*time.Second, time.Millisecond)
}

// TestNothingToWaitFor: after an event that ends the connection, Close does not wait for the peer's
// answer.
func TestNothingToWaitFor(t *testing.T) {
	vctx := insideContext(t)
	ctx := t.Context()
	for _, event := range []Event{EventDisconnected, EventTimewaitExit, EventDeviceRemoval, EventUnreachable,
		EventConnectError, EventRejected} {
		ln, err := Listen(ctx, "192.0.2.1:0", Config{Context: vctx})
		require.NoError(t, err)
		id, err := Resolve(ctx, ln.Addr().String(), Config{Context: vctx})
		require.NoError(t, err)
		passive := accepts(ctx, ln, insideQP(t, vctx, verbs.QPTypeRC))
		require.NoError(t, id.Connect(ctx, insideQP(t, vctx, verbs.QPTypeRC), ConnParam{PrivateData: []byte("me")}))
		p := <-passive
		require.NotNil(t, p)
		if event != EventDisconnected {
			fakeverbs.CMNext("rdma_disconnect", fakeverbs.CMEvent{Event: fakeverbs.NoEvent}) // the peer does not answer
		}
		for _, known := range fakeverbs.CMIDs() {
			if string(known.Param.PrivateData) == "me" {
				fakeverbs.InjectCM(known.ID, fakeverbs.CMEvent{Event: int(event)})
			}
		}
		select {
		case <-id.conn.(*kernelConn).gone:
		case <-time.After(20 * time.Second):
			require.Fail(t, "the connection is not gone", event)
		}
		require.NoError(t, id.Close())
		require.NoError(t, p.Close())
		require.NoError(t, ln.Close())
	}
	id, err := Resolve(ctx, "192.0.2.1:7", Config{Context: vctx, PortSpace: PortSpaceUDP})
	require.NoError(t, err)
	fakeverbs.CMNext("rdma_connect", fakeverbs.CMEvent{Event: int(EventEstablished)})
	require.NoError(t, id.Connect(ctx, insideQP(t, vctx, verbs.QPTypeUD), ConnParam{}))
	require.NoError(t, id.Disconnect())
	<-id.conn.(*kernelConn).gone
	require.NoError(t, id.Close())
}

// TestEventOfAClosedQP: an iWARP QP that is closed ends the stream. The watcher may see that event
// first, but the QP has the reason.
func TestEventOfAClosedQP(t *testing.T) {
	vctx := insideContextOf(t, "fake1")
	ctx := t.Context()
	ln, err := Listen(ctx, "198.51.100.1:0", Config{Context: vctx})
	require.NoError(t, err)
	id, err := Resolve(ctx, ln.Addr().String(), Config{Context: vctx})
	require.NoError(t, err)
	qp := insideQP(t, vctx, verbs.QPTypeRC)
	passive := accepts(ctx, ln, insideQP(t, vctx, verbs.QPTypeRC))
	require.NoError(t, id.Connect(ctx, qp, ConnParam{}))
	p := <-passive
	require.NotNil(t, p)
	c := id.conn.(*kernelConn)
	close(c.quit)
	<-c.idle // the watcher has returned
	require.NoError(t, qp.Close())
	<-p.Done()
	c.quit, c.idle = make(chan struct{}), make(chan struct{})
	go c.watch(nil) // sees the event only
	<-id.Done()
	require.ErrorIs(t, id.Err(), verbs.ErrClosed)
	require.ErrorIs(t, p.Err(), io.EOF)
	require.NoError(t, id.Close())
	require.NoError(t, p.Close())
	require.NoError(t, ln.Close())
}

// TestGroupsAreForgotten: an ID retains nothing of groups that it left or could not join.
func TestGroupsAreForgotten(t *testing.T) {
	vctx := insideContext(t)
	id, err := Resolve(t.Context(), "192.0.2.1:7", Config{Context: vctx, PortSpace: PortSpaceUDP})
	require.NoError(t, err)
	defer func() { require.NoError(t, id.Close()) }()
	qp := insideQP(t, vctx, verbs.QPTypeUD)
	join := func() (*Multicast, error) { return id.JoinMulticast(t.Context(), qp, netip.MustParseAddr("239.1.2.3")) }
	end := id.route.(*kernelRoute).end
	m, err := join()
	require.NoError(t, err)
	require.Len(t, end.memberships(), 1)
	require.NoError(t, m.Leave())
	require.Empty(t, end.memberships())
	fakeverbs.Fail("rdma_join_multicast", 1, syscall.ENOMEM)
	_, err = join()
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.Empty(t, end.memberships())
	require.Empty(t, id.groups)

	first, err := join()
	require.NoError(t, err)
	second, err := id.JoinMulticast(t.Context(), qp, netip.MustParseAddr("239.1.2.4"))
	require.NoError(t, err)
	require.Len(t, end.memberships(), 2)
	require.NoError(t, first.Leave())
	require.Equal(t, "239.1.2.4", end.memberships()[0].at.Addr().String())
	require.NoError(t, second.Leave())
	require.Empty(t, end.memberships())
}

// TestEndpointIsForgotten: the channel retains nothing of an ID that could not be created.
func TestEndpointIsForgotten(t *testing.T) {
	vctx := insideContext(t)
	ln, err := Listen(t.Context(), "192.0.2.1:0", Config{Context: vctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	fakeverbs.Fail("rdma_create_id", 1, syscall.ENOMEM)
	_, err = Resolve(t.Context(), "192.0.2.1:7", Config{Context: vctx})
	require.ErrorIs(t, err, syscall.ENOMEM)
	ch := shared.ch
	ch.mu.Lock()
	defer ch.mu.Unlock()
	require.Len(t, ch.ends, 1)
	require.Equal(t, 1, ch.refs)
}

// TestEndWithEstablished: the end of a connection is not missed if its event arrives together with
// ESTABLISHED.
func TestEndWithEstablished(t *testing.T) {
	end := &endpoint{wake: make(chan struct{}, 1)}
	end.deliver(rawEvent{event: EventEstablished})
	end.deliver(rawEvent{event: EventTimewaitExit})
	<-end.wake // as next does when both have arrived since its last check
	ev, ok := end.take()
	require.True(t, ok)
	require.Equal(t, EventEstablished, ev.event)
	c := &kernelConn{end: end, ps: PortSpaceUDP, quit: make(chan struct{}), done: make(chan struct{}),
		gone: make(chan struct{}), idle: make(chan struct{})}
	go c.watch(nil)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the end was missed")
	}
	close(c.quit)
	<-c.idle
}
