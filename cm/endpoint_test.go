// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// within returns a context for operations that must not take long.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// usiwDevice returns the device of a new NIC. A busy machine may take longer to set up a hundred
// connections at once than the NIC waits by default.
func usiwDevice(t testing.TB) *verbs.Device {
	t.Helper()
	nic, err := usiw.New(usiw.Config{SetupTimeout: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

// listener listens on a device.
func listener(t testing.TB, dev *verbs.Device) *cm.Listener {
	t.Helper()
	ln, err := cm.Listen(within(t), "127.0.0.1:0", cm.Config{Device: dev})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ln.Close()) })
	return ln
}

// endpoints returns the two ends of a connection from a device to itself.
func endpoints(t testing.TB, dev *verbs.Device, active, passive cm.EndpointConfig) (a, b *cm.Endpoint) {
	t.Helper()
	ctx, ln := within(t), listener(t, dev)
	accepted := make(chan error, 1)
	go func() {
		var err error
		b, err = ln.AcceptEndpoint(ctx, passive)
		accepted <- err
	}()
	a, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: dev}, active)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	require.NoError(t, <-accepted)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return a, b
}

// devices are the user-space NIC and one that wraps it.
func devices(t *testing.T, run func(t *testing.T, dev *verbs.Device)) {
	t.Run("usiw", func(t *testing.T) { run(t, usiwDevice(t)) })
	t.Run("forward", func(t *testing.T) {
		dev := forward.Wrap(usiwDevice(t))
		t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
		run(t, dev)
	})
}

// offer makes an endpoint advertise its memory to the peer.
func offer(ep *cm.Endpoint, p *cm.ConnParam) error {
	p.PrivateData = ep.MR().Remote().Append(nil)
	return nil
}

func TestEndpointMessages(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		ctx := within(t)
		a, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{Messages: 2, MessageSize: 100})
		p := make([]byte, 100)
		for i := range 40 {
			text := make([]byte, i)
			for j := range text {
				text[j] = byte(i + j)
			}
			require.NoError(t, a.Send(ctx, text))
			wc, err := b.Recv(ctx, p)
			require.NoError(t, err)
			require.Equal(t, verbs.WCRecv, wc.Opcode)
			require.EqualValues(t, i, wc.ByteLen)
			require.Equal(t, text, p[:i])
		}
		require.NoError(t, a.Shutdown(ctx))
		for range 5 { // more often than there are receives
			_, err := b.Recv(ctx, p)
			require.ErrorIs(t, err, io.EOF)
		}
		_, err := a.Recv(ctx, p)
		require.ErrorIs(t, err, verbs.ErrClosed)
		require.ErrorIs(t, a.Send(ctx, p), verbs.ErrClosed)
	})
}

func TestEndpointDo(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		ctx := within(t)
		a, b := endpoints(t, dev, cm.EndpointConfig{Memory: 64},
			cm.EndpointConfig{Memory: 64,
				Access: verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic, Prepare: offer})
		to, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(t, err)
		require.Equal(t, b.MR().Remote(), to)
		sge, err := a.MR().SGE(0, copy(a.MR().Bytes(), "hello, memory"))
		require.NoError(t, err)
		wr := verbs.WriteImm(to, 7306, sge)
		wr.ID = 77
		wc, err := a.Do(ctx, wr)
		require.NoError(t, err)
		require.Equal(t, verbs.WCRDMAWrite, wc.Opcode)
		require.EqualValues(t, 77, wc.ID, "the ID of the program")
		wc, err = b.Recv(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, verbs.WCRecvRDMAWithImm, wc.Opcode)
		require.EqualValues(t, 7306, wc.Imm)
		require.EqualValues(t, 13, wc.ByteLen)
		require.Equal(t, "hello, memory", string(b.MR().Bytes()[:13]))
		// A list is executed in order; the completion is that of the last request.
		back, err := a.MR().SGE(32, 13)
		require.NoError(t, err)
		wc, err = a.Do(ctx, verbs.Write(to, sge), verbs.Read(to, back))
		require.NoError(t, err)
		require.Equal(t, verbs.WCRDMARead, wc.Opcode)
		require.Equal(t, "hello, memory", string(a.MR().Bytes()[32:45]))
		// A request that the peer refuses ends the connection.
		wrong := to
		wrong.RKey++
		_, err = a.Do(ctx, verbs.Read(wrong, back))
		require.Error(t, err)
		var reason *verbs.TerminateError
		require.ErrorAs(t, err, &reason)
		_, err = a.Do(ctx, verbs.Write(to, sge))
		require.ErrorIs(t, err, verbs.WCWRFlushErr)
		require.ErrorAs(t, err, &reason)
		_, err = b.Recv(ctx, nil)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	})
}

// TestEndpointRefused: invalid calls are refused, and do nothing.
func TestEndpointRefused(t *testing.T) {
	ctx := within(t)
	a, b := endpoints(t, usiwDevice(t), cm.EndpointConfig{MessageSize: 10, Cap: verbs.QPCap{MaxSendWR: 4}},
		cm.EndpointConfig{Messages: cm.None})
	var limit *verbs.LimitError
	require.ErrorAs(t, a.Send(ctx, make([]byte, 11)), &limit)
	require.Equal(t, verbs.LimitError{Name: "MessageSize", Limit: 10, Value: 11}, *limit)
	_, err := a.Do(ctx)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = a.Do(ctx, make([]verbs.SendWR, 5)...)
	require.ErrorAs(t, err, &limit)
	require.ErrorIs(t, b.Send(ctx, nil), verbs.ErrInvalid)
	require.ErrorContains(t, b.Send(ctx, make([]byte, 1)), "without buffers")
	require.NoError(t, b.PostRecv(verbs.RecvWR{ID: 5}, verbs.RecvWR{ID: 6}))
	// The first request is executed, the second is refused.
	_, err = a.Do(ctx, verbs.Send(), verbs.SendWR{Opcode: 99})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "request 1")
	wc, err := b.Recv(ctx, nil)
	require.NoError(t, err)
	require.EqualValues(t, 5, wc.ID)
	for range 10 { // no slot of the queue is lost
		_, err = a.Do(ctx, verbs.SendWR{Opcode: 99})
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	_, err = a.Do(ctx, verbs.Send())
	require.NoError(t, err)
	_, err = b.Recv(ctx, nil)
	require.NoError(t, err)
}

// TestEndpointConcurrent: any number of goroutines call one endpoint, and one of them polls the CQ
// for all.
func TestEndpointConcurrent(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		ctx := within(t)
		const workers, rounds = 8, 50
		// The queues are much shorter than the number of requests.
		cfg := cm.EndpointConfig{Messages: 16, MessageSize: 16, Memory: 8 * workers, Access: verbs.AccessRemoteAtomic,
			Cap: verbs.QPCap{MaxSendWR: 3}, Prepare: offer}
		a, b := endpoints(t, dev, cfg, cfg)
		at, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(t, err)
		var group errgroup.Group
		var got [256]atomic.Int32
		for i := range workers {
			group.Go(func() error {
				for n := range rounds {
					if err := a.Send(ctx, []byte{byte(i), byte(n)}); err != nil {
						return err
					}
				}
				return nil
			})
			group.Go(func() error {
				p := make([]byte, 16)
				for range rounds {
					if _, err := b.Recv(ctx, p); err != nil {
						return err
					}
					got[p[0]].Add(1 << 16)
					got[p[0]].Add(int32(p[1]))
				}
				return nil
			})
			group.Go(func() error {
				sge, err := a.MR().SGE(8*i, 8)
				if err != nil {
					return err
				}
				for range rounds {
					if wc, err := a.Do(ctx, verbs.FetchAdd(at, 1, sge)); err != nil || wc.ByteLen != 8 {
						return fmt.Errorf("%d bytes: %w", wc.ByteLen, err)
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		for i := range workers {
			require.EqualValues(t, rounds<<16+rounds*(rounds-1)/2, got[i].Load(), "each message once")
		}
		require.EqualValues(t, workers*rounds, binary.NativeEndian.Uint64(b.MR().Bytes()))
	})
}

// TestEndpointPending: a request whose context was done stays posted, and the error's Wait returns
// when it has completed.
func TestEndpointPending(t *testing.T) {
	ctx := within(t)
	const size = 8 << 20
	a, b := endpoints(t, usiwDevice(t), cm.EndpointConfig{Memory: size, Cap: verbs.QPCap{MaxSendWR: 2}},
		cm.EndpointConfig{Memory: size, Access: verbs.AccessRemoteRead, Prepare: offer})
	from, err := verbs.ParseRemote(a.PrivateData())
	require.NoError(t, err)
	copy(b.MR().Bytes()[size-8:], "contents")
	sge, err := a.MR().SGE(0, size)
	require.NoError(t, err)
	posted := a.Dispatcher().Outstanding()

	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err = a.Do(gone, verbs.Read(from, sge))
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, errors.As(err, new(*cm.PendingError)), "nothing was posted")
	require.Equal(t, posted, a.Dispatcher().Outstanding())
	_, err = a.Recv(gone, nil)
	require.ErrorIs(t, err, context.Canceled)

	var pending *cm.PendingError
	for pending == nil { // until the cancel comes before the completion
		during, cancel := context.WithCancel(ctx)
		go func() {
			for a.Dispatcher().Outstanding() == posted && ctx.Err() == nil {
				runtime.Gosched()
			}
			cancel()
		}()
		if _, err = a.Do(during, verbs.Read(from, sge)); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorAs(t, err, &pending)
		}
		<-during.Done()
	}
	if _, err = pending.Wait(gone); err != nil {
		require.ErrorAs(t, err, new(*cm.PendingError))
	}
	waited := make(chan error)
	for range 4 {
		go func() {
			wc, err := pending.Wait(ctx)
			if err == nil && wc.Opcode != verbs.WCRDMARead {
				err = fmt.Errorf("completion %+v", wc)
			}
			waited <- err
		}()
	}
	for range 4 {
		require.NoError(t, <-waited)
	}
	_, err = pending.Wait(ctx)
	require.NoError(t, err)
	require.Equal(t, "contents", string(a.MR().Bytes()[size-8:]))
	sge.Length = 8
	for range 10 { // no slot is lost
		_, err = a.Do(ctx, verbs.Read(from, sge), verbs.Read(from, sge))
		require.NoError(t, err)
	}
}
