// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestRequestOfAnotherDevice: a wildcard listener on one device does not accept requests on
// another.
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
	answered := make(chan error, 1)
	go func() {
		req, err := ln.Accept(soon(t))
		if err == nil {
			err = req.Reject([]byte("seen"))
		}
		answered <- err
	}()
	var re *cm.RejectedError
	require.ErrorAs(t, mine.Connect(soon(t), newQP(t, vctx, 0), cm.ConnParam{}), &re)
	require.NoError(t, <-answered)
	require.Equal(t, "seen", string(re.PrivateData[:4]))
}

// TestWrongDevice: a device other than the configured one may have the route to an address.
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

// TestPortTries: kernel siw needs a port that is also free in TCP.
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

// TestBacklog: up to Backlog requests wait, in order; further ones are refused.
func TestBacklog(t *testing.T) {
	eachFake(t, func(b *bench) {
		ln, err := cm.Listen(soon(b.T), net.JoinHostPort(b.ip, "0"), cm.Config{Context: b.vctx, Backlog: 3})
		require.NoError(b, err)
		defer func() { require.NoError(b, ln.Close()) }()
		done, cancel := context.WithCancel(b.Context())
		cancel()
		_, err = ln.Accept(done)
		require.ErrorIs(b, err, context.Canceled)
		var asked []<-chan error
		ask := func(data string) {
			id, err := cm.Resolve(soon(b.T), ln.Addr().String(), cm.Config{Context: b.vctx})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, id.Close()) })
			qp := b.qp(0)
			connected := make(chan error, 1)
			go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{PrivateData: []byte(data)}) }()
			asked = append(asked, connected)
		}
		for n, data := range []string{"a", "b", "c"} {
			ask(data)
			b.until("the request is there", func() bool {
				waiting := 0
				for _, id := range fakeverbs.CMIDs() {
					if id.State == fakeverbs.CMRequested {
						waiting++
					}
				}
				return waiting == n+1
			})
		}
		ask("one more")
		var refused *cm.RejectedError
		require.ErrorAs(b, b.outcome(asked[3]), &refused)
		require.Equal(b, "backlog full", refused.Reason)
		require.Empty(b, refused.PrivateData)
		for i, data := range []string{"a", "b", "c"} {
			req, err := ln.Accept(soon(b.T))
			require.NoError(b, err)
			require.Equal(b, data, string(req.PrivateData()[:1]))
			require.NoError(b, req.Reject(nil))
			require.ErrorIs(b, b.outcome(asked[i]), cm.ErrRejected)
		}
	})
}

// TestRequestOfNoDevice: a request on a device that cannot be opened is refused, and the next one
// is accepted.
func TestRequestOfNoDevice(t *testing.T) {
	auto(t)
	ln, err := cm.Listen(soon(t), ":0", cm.Config{}) // opens fake0
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	vctx, err := device(t, "fake1").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vctx.Close()) })
	b := bench{T: t, vctx: vctx}
	id, err := cm.Resolve(soon(t), net.JoinHostPort(fakes[1].ip, port), cm.Config{Context: vctx})
	require.NoError(t, err)
	fakeverbs.Fail("ibv_open_device", 1, syscall.EMFILE)
	connected := make(chan error, 1)
	qp := newQP(t, vctx, 0)
	defer func() { require.NoError(t, id.Close()) }()
	go func() { connected <- id.Connect(soon(t), qp, cm.ConnParam{}) }()
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(soon(t))
		if err == nil {
			err = req.Reject(nil)
		}
		accepted <- err
	}()
	require.ErrorIs(t, b.outcome(connected), cm.ErrRejected)
	require.Len(t, accepted, 0)
	require.ErrorIs(t, b.outcome(ask(t, net.JoinHostPort(fakes[0].ip, port))), cm.ErrRejected)
	require.NoError(t, b.outcome(accepted))
}

// TestRequestOfAClosedContext: a request is refused if the program has closed the context of its
// device.
func TestRequestOfAClosedContext(t *testing.T) {
	fakeverbs.Start(t)
	vctx, err := device(t, "fake0").Open()
	require.NoError(t, err)
	ln, err := cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Context: vctx})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	require.NoError(t, vctx.Close())
	other, err := device(t, "fake0").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Context: other})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, id.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan error, 1)
	go func() {
		_, err := ln.Accept(ctx)
		accepted <- err
	}()
	require.ErrorIs(t, id.Connect(soon(t), newQP(t, other, 0), cm.ConnParam{}), cm.ErrRejected)
	cancel()
	require.ErrorIs(t, <-accepted, context.Canceled)
}

// TestRequestAtAClosingListener: a request that arrives while its listener is being closed is
// refused.
func TestRequestAtAClosingListener(t *testing.T) {
	eachFake(t, func(b *bench) {
		b.Cleanup(fakeverbs.Release)
		ln, err := cm.Listen(soon(b.T), net.JoinHostPort(b.ip, "0"), cm.Config{Context: b.vctx})
		require.NoError(b, err)
		id, err := cm.Resolve(soon(b.T), ln.Addr().String(), cm.Config{Context: b.vctx})
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, id.Close()) })
		fakeverbs.Hold("rdma_destroy_id")
		closed := make(chan error, 1)
		go func() { closed <- ln.Close() }()
		b.until("rdma_destroy_id", fakeverbs.Holding)
		require.ErrorIs(b, id.Connect(soon(b.T), b.qp(0), cm.ConnParam{}), cm.ErrRejected)
		fakeverbs.Release()
		require.NoError(b, b.outcome(closed))
	})
}

// TestManyAtOnce: connections that share the event channel do not wait for each other, even if the
// program of one is slow.
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
