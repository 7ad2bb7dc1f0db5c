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
