// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// TestEndpointClose: pending calls return the reason when either side closes at any moment.
func TestEndpointClose(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		for i := range 20 {
			ctx := within(t)
			cfg := cm.EndpointConfig{Messages: 4, Memory: 1 << 16, Access: verbs.AccessRemoteRead, Offer: true,
				Cap: verbs.QPCap{MaxSendWR: 3}}
			a, b := endpoints(t, dev, cfg, cfg)
			from, err := verbs.ParseRemote(a.PrivateData())
			require.NoError(t, err)
			var calls sync.WaitGroup
			ended := make(chan error, 16)
			begun := make(chan struct{}, 16)
			for range 3 {
				calls.Go(func() { // queued Reads
					sge, err := a.MR().SGE(0, 1<<16)
					for n := 0; err == nil; n++ {
						if n == i {
							begun <- struct{}{}
						}
						_, err = a.Do(ctx, verbs.Read(from, sge))
					}
					ended <- err
				})
				calls.Go(func() {
					_, err := a.Recv(ctx, nil)
					ended <- err
				})
			}
			<-begun
			closer := []*cm.Endpoint{a, b}[i%2]
			require.NoError(t, closer.Close())
			calls.Wait()
			for range 6 {
				err := <-ended
				require.NoError(t, ctx.Err())
				if closer == a {
					require.ErrorIs(t, err, verbs.ErrClosed)
				} else { // the reason for a broken stream can also be a reset
					require.NotErrorIs(t, err, verbs.ErrClosed)
				}
			}
			require.NoError(t, closer.Close(), "again")
			_, err = a.Recv(ctx, nil)
			require.Error(t, err)
		}
	})
	require.NoError(t, (*cm.Endpoint)(nil).Close())
}

// TestEndpointCloseInside: Close returns an error in a function of the dispatcher, which cannot
// close the endpoint. Afterwards it can be closed.
func TestEndpointCloseInside(t *testing.T) {
	ctx := within(t)
	a, _ := endpoints(t, usiwDevice(t), cm.EndpointConfig{}, cm.EndpointConfig{})
	ready := make(chan struct{}, 1)
	_, err := a.Dispatcher().PostSend(a.QP(), []verbs.SendWR{verbs.Send()}, func(*verbs.WC) {
		begin := time.Now()
		err := a.Close()
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "a function of the dispatcher must not wait")
		require.Less(t, time.Since(begin), 5*time.Second, "it did not try")
		ready <- struct{}{}
	})
	require.NoError(t, err)
	require.NoError(t, a.Dispatcher().Wait(ctx, ready))
	require.NoError(t, a.Send(ctx, []byte("goes on")))
	require.NoError(t, a.Close())
}

// TestEndpointEnd: messages that have arrived are received before the end, and a Recv for which no
// receive is posted returns too.
func TestEndpointEnd(t *testing.T) {
	ctx := within(t)
	dev := usiwDevice(t)
	a, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{Messages: 3})
	for i := range byte(3) {
		require.NoError(t, a.Send(ctx, []byte{i}))
	}
	require.NoError(t, a.Shutdown(ctx))
	require.NoError(t, a.Close())
	<-b.ID().Done()
	p := make([]byte, 1)
	for i := range byte(3) {
		_, err := b.Recv(ctx, p)
		require.NoError(t, err)
		require.Equal(t, i, p[0])
	}
	_, err := b.Recv(ctx, p)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorIs(t, b.Send(ctx, p), io.EOF)

	a, b = endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{Messages: cm.None})
	received := make(chan error, 1)
	go func() {
		_, err := b.Recv(ctx, nil)
		received <- err
	}()
	require.NoError(t, a.Close())
	require.ErrorIs(t, <-received, io.EOF)
}

// TestEndpointShortBuffer: a message that does not fit is not consumed.
func TestEndpointShortBuffer(t *testing.T) {
	ctx := within(t)
	a, b := endpoints(t, usiwDevice(t), cm.EndpointConfig{}, cm.EndpointConfig{Messages: 1})
	require.NoError(t, a.Send(ctx, []byte("four")))
	p := make([]byte, 4)
	wc, err := b.Recv(ctx, p[:3])
	require.ErrorIs(t, err, io.ErrShortBuffer)
	require.EqualValues(t, 4, wc.ByteLen)
	_, err = b.Recv(ctx, p)
	require.NoError(t, err)
	require.Equal(t, "four", string(p))
}

// TestEndpointShutdown: the results of Shutdown when it cannot end the connection cleanly.
func TestEndpointShutdown(t *testing.T) {
	ctx := within(t)
	dev := usiwDevice(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()

	t.Run("no Reads", func(t *testing.T) {
		a, b := endpoints(t, dev, cm.EndpointConfig{Param: cm.ConnParam{InitiatorDepth: cm.None}}, cm.EndpointConfig{})
		require.NoError(t, a.Send(ctx, nil))
		require.ErrorIs(t, a.Shutdown(ctx), verbs.ErrNotSupported)
		require.NoError(t, a.ID().Err(), "the connection has not ended")
		require.NoError(t, b.Shutdown(ctx), "nothing to confirm")
	})
	t.Run("context", func(t *testing.T) {
		a, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{})
		require.NoError(t, a.Send(ctx, nil))
		require.ErrorIs(t, a.Shutdown(gone), context.Canceled)
		require.ErrorIs(t, a.Send(ctx, nil), verbs.ErrClosed, "refused from the first call on")
		require.NoError(t, a.ID().Err())
		require.NoError(t, b.Send(ctx, nil), "the peer can go on")
		_, err := a.Recv(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, a.Shutdown(ctx))
	})
	t.Run("peer first", func(t *testing.T) {
		a, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{})
		require.NoError(t, a.Send(ctx, nil))
		require.NoError(t, b.Close())
		require.ErrorIs(t, a.Shutdown(ctx), io.EOF, "it is not known what has arrived")
	})
	t.Run("confirmed", func(t *testing.T) {
		a, b := endpoints(t, dev, cm.EndpointConfig{Memory: 8},
			cm.EndpointConfig{Memory: 8, Access: verbs.AccessRemoteRead, Offer: true})
		from, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(t, err)
		sge, err := a.MR().SGE(0, 8)
		require.NoError(t, err)
		_, err = a.Do(ctx, verbs.Send(), verbs.Read(from, sge))
		require.NoError(t, err)
		require.NoError(t, b.Close())
		<-a.ID().Done()
		require.NoError(t, a.Shutdown(ctx), "the Read has confirmed the message")
	})
}

// TestEndpointShutdownBoth: if both sides shut down, nil means that the other has everything from
// that side, and at least one side gets nil. Completed receives can be read after the end.
func TestEndpointShutdownBoth(t *testing.T) {
	const messages = 40
	devices(t, func(t *testing.T, dev *verbs.Device) {
		for range 5 {
			ctx := within(t)
			cfg := cm.EndpointConfig{Messages: messages, MessageSize: 1}
			a, b := endpoints(t, dev, cfg, cfg)
			ends := []*cm.Endpoint{a, b}
			var shut [2]error
			var both sync.WaitGroup
			for i, ep := range ends {
				both.Go(func() {
					for n := range byte(messages) {
						if shut[i] = ep.Send(ctx, []byte{n}); shut[i] != nil {
							return
						}
					}
					shut[i] = ep.Shutdown(ctx)
				})
			}
			both.Wait()
			require.NoError(t, ctx.Err())
			require.True(t, shut[0] == nil || shut[1] == nil, "%v, %v", shut[0], shut[1])
			for i := range ends {
				if shut[i] != nil {
					continue
				}
				var p [1]byte
				for n := range byte(messages) {
					_, err := ends[1-i].Recv(ctx, p[:])
					require.NoError(t, err)
					require.Equal(t, n, p[0])
				}
			}
		}
	})
}

// TestEndpointShutdownLast: if one side marks its last message, and the other receives it before it
// shuts down, everything of both sides has arrived, whatever else is in flight.
func TestEndpointShutdownLast(t *testing.T) {
	const messages = 40
	devices(t, func(t *testing.T, dev *verbs.Device) {
		for range 5 {
			ctx := within(t)
			cfg := cm.EndpointConfig{Messages: messages, MessageSize: 1}
			a, b := endpoints(t, dev, cfg, cfg)
			sendAll := func(ep *cm.Endpoint) error {
				for n := range byte(messages) {
					if err := ep.Send(ctx, []byte{n}); err != nil {
						return err
					}
				}
				return nil
			}
			// takeAll receives messages until the last one, or until the end.
			takeAll := func(ep *cm.Endpoint, last bool) (taken []byte, err error) {
				var p [1]byte
				for err == nil && !(last && len(taken) == messages) {
					if _, err = ep.Recv(ctx, p[:]); err == nil {
						taken = append(taken, p[0])
					}
				}
				return taken, err
			}
			var want []byte
			for n := range byte(messages) {
				want = append(want, n)
			}
			ended := make(chan error, 1)
			go func() {
				if err := sendAll(b); err != nil {
					ended <- err
					return
				}
				taken, err := takeAll(b, false)
				if errors.Is(err, io.EOF) && !bytes.Equal(want, taken) {
					err = fmt.Errorf("%v has arrived", taken)
				}
				ended <- err
			}()
			require.NoError(t, sendAll(a))
			taken, err := takeAll(a, true)
			require.NoError(t, err)
			require.Equal(t, want, taken)
			require.NoError(t, a.Shutdown(ctx))
			require.ErrorIs(t, <-ended, io.EOF)
		}
	})
}

// TestEndpointStray: the completion of a request that bypassed the dispatcher is reported to one
// pending call, and Close ignores it.
func TestEndpointStray(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		ctx := within(t)
		cfg := cm.EndpointConfig{Messages: 2, Cap: verbs.QPCap{MaxRecvWR: 6, MaxSendWR: 4}}
		a, b := endpoints(t, dev, cfg, cfg)
		_, err := a.QP().PostSend([]verbs.SendWR{{ID: 77, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
		require.NoError(t, err)
		_, err = a.Recv(ctx, nil)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.ErrorContains(t, err, "not posted through the dispatcher: wr_id 0x4d")
		_, err = b.Recv(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, b.Send(ctx, []byte("on")))
		p := make([]byte, 2)
		_, err = a.Recv(ctx, p)
		require.NoError(t, err)
		require.Equal(t, "on", string(p))

		for _, ep := range []*cm.Endpoint{a, b} { // flushed after those of the endpoint
			_, err = ep.QP().PostRecv(make([]verbs.RecvWR, 3))
			require.NoError(t, err)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// TestEndpointOfCaller: objects of the caller are used and stay open.
func TestEndpointOfCaller(t *testing.T) {
	ctx := within(t)
	dev := usiwDevice(t)
	vctx, err := dev.SharedContext()
	require.NoError(t, err)
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	require.NoError(t, err)
	cq, err := vctx.CreateCQ(verbs.CQConfig{CQE: 100})
	require.NoError(t, err)
	d, err := verbs.NewDispatcher(cq, verbs.DispatcherConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 10, MaxRecvWR: 10}})
	require.NoError(t, err)
	shared := cm.EndpointConfig{PD: pd, Dispatcher: d, MR: mr, Messages: 5, Cap: verbs.QPCap{MaxSendWR: 10}}
	own := shared
	own.QP = qp
	func() {
		a, b := endpoints(t, dev, own, cm.EndpointConfig{})
		require.Same(t, qp, a.QP())
		require.Same(t, pd, a.PD())
		require.Same(t, mr, a.MR())
		require.Same(t, d, a.Dispatcher())
		c, e := endpoints(t, dev, shared, shared) // a connection of the dispatcher to itself
		run, stop := context.WithCancel(ctx)
		ran := make(chan error, 1)
		go func() { ran <- d.Run(run) }()
		p := make([]byte, 1)
		for range 10 {
			require.NoError(t, a.Send(ctx, p))
			require.NoError(t, c.Send(ctx, p))
			require.NoError(t, b.Send(ctx, p))
			for _, ep := range []*cm.Endpoint{a, b, e} {
				_, err := ep.Recv(ctx, p)
				require.NoError(t, err)
			}
		}
		stop()
		require.ErrorIs(t, <-ran, context.Canceled)
		_, err = cm.Dial(ctx, "127.0.0.1:1", cm.Config{Device: dev},
			cm.EndpointConfig{Dispatcher: d, Cap: verbs.QPCap{MaxSendWR: 60}})
		require.ErrorIs(t, err, verbs.ErrLimit, "20 for the QP, 15 for each of the others, 16 for messages")
		require.NoError(t, errors.Join(a.Close(), b.Close(), c.Close(), e.Close()))
	}()
	require.Zero(t, d.Outstanding())
	require.NoError(t, d.Reserve(100), "what was reserved has been released")
	require.Equal(t, verbs.QPStateErr, qp.State())
	require.NoError(t, errors.Join(qp.Close(), mr.Close(), cq.Close(), pd.Close()),
		"all were open, and nothing used them")

	other := usiwDevice(t)
	octx, err := other.SharedContext()
	require.NoError(t, err)
	opd, err := octx.AllocPD()
	require.NoError(t, err)
	for _, cfg := range []cm.EndpointConfig{{PD: opd}, {QP: qp}, {MR: mr}, {Offer: true}, {Memory: -1}, {Messages: -2},
		{MessageSize: -1}, {Messages: 5, Cap: verbs.QPCap{MaxRecvWR: 4}}} {
		ep, err := cm.Dial(ctx, "127.0.0.1:1", cm.Config{Device: dev}, cfg)
		require.Error(t, err, "%v", cfg)
		require.Nil(t, ep)
	}
	require.NoError(t, opd.Close())
}

// TestEndpointRejected: the request is rejected if the endpoint cannot be created or Prepare
// refuses.
func TestEndpointRejected(t *testing.T) {
	ctx := within(t)
	dev := usiwDevice(t)
	ln := listener(t, dev)
	mistake := errors.New("not this peer")
	accepted := make(chan error, 1)
	go func() {
		_, err := ln.AcceptEndpoint(ctx,
			cm.EndpointConfig{Prepare: func(*cm.Endpoint, *cm.ConnParam) error { return mistake }})
		accepted <- err
	}()
	_, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: dev}, cm.EndpointConfig{})
	require.ErrorIs(t, err, cm.ErrRejected)
	require.ErrorIs(t, <-accepted, mistake)
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err = ln.AcceptEndpoint(short, cm.EndpointConfig{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
