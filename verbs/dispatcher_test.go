// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// dispatching has connected QPs whose requests all complete into the CQ of one dispatcher.
type dispatching struct {
	*testing.T
	ctx  context.Context
	dev  *verbs.Device
	d    *verbs.Dispatcher
	pd   *verbs.PD
	mr   *verbs.MR
	pair [][2]*verbs.QP // connected to each other
}

// newDispatching makes a CQ of cqe entries and n pairs of QPs, each with queues of depth entries.
func newDispatching(t *testing.T, cqe, n, depth int, cfg verbs.DispatcherConfig) *dispatching {
	t.Helper()
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	w := &dispatching{T: t, ctx: ctx, dev: nic.Device()}
	vctx, err := w.dev.SharedContext()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.dev.CloseShared()) })
	w.pd, err = vctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.pd.Close()) })
	w.mr, err = w.pd.AllocMR(4096,
		verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead|verbs.AccessRemoteAtomic)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.mr.Close()) })
	cq, err := vctx.CreateCQ(verbs.CQConfig{CQE: cqe})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cq.Close()) })
	w.d, err = verbs.NewDispatcher(cq, cfg)
	require.NoError(t, err)
	require.Same(t, cq, w.d.CQ())
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: w.dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	for range n {
		w.pair = append(w.pair, w.connect(ln, depth))
	}
	return w
}

func (w *dispatching) qp(depth int) *verbs.QP {
	qp, err := w.pd.CreateQP(
		verbs.QPConfig{SendCQ: w.d.CQ(), RecvCQ: w.d.CQ(), Cap: verbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth}})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, qp.Close()) })
	return qp
}

func (w *dispatching) connect(ln *cm.Listener, depth int) [2]*verbs.QP {
	a, b := w.qp(depth), w.qp(depth)
	accepted := make(chan error, 1)
	go func() {
		req, err := ln.Accept(w.ctx)
		if err == nil {
			var id *cm.ID
			if id, err = req.Accept(w.ctx, b, cm.ConnParam{}); err == nil {
				w.Cleanup(func() { require.NoError(w, id.Close()) })
			}
		}
		accepted <- err
	}()
	id, err := cm.Resolve(w.ctx, ln.Addr().String(), cm.Config{Device: w.dev})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, id.Close()) })
	require.NoError(w, id.Connect(w.ctx, a, cm.ConnParam{}))
	require.NoError(w, <-accepted)
	return [2]*verbs.QP{a, b}
}

func (w *dispatching) sge(off, n int) verbs.SGE {
	sge, err := w.mr.SGE(off, n)
	require.NoError(w, err)
	return sge
}

// recv posts a receive with a function.
func (w *dispatching) recv(qp *verbs.QP, id uint64, f func(*verbs.WC)) {
	n, err := w.d.PostRecv(qp, []verbs.RecvWR{{ID: id}}, f)
	require.NoError(w, err)
	require.Equal(w, 1, n)
}

// send posts an empty message with a function.
func (w *dispatching) send(qp *verbs.QP, id uint64, f func(*verbs.WC)) {
	n, err := w.d.PostSend(qp, []verbs.SendWR{{ID: id, Opcode: verbs.WRSend}}, f)
	require.NoError(w, err)
	require.Equal(w, 1, n)
}

func ignore(*verbs.WC) {}

// TestDispatcher: each request's function gets its completion, with the ID of the program, and may
// post again.
func TestDispatcher(t *testing.T) {
	const pairs, rounds = 5, 20
	w := newDispatching(t, 256, pairs, 8, verbs.DispatcherConfig{})
	var at verbs.Remote = w.mr.Remote()
	done := make(chan struct{}, 1)
	got, left := map[string]int{}, pairs
	for i, p := range w.pair {
		var post func(round uint64)
		post = func(round uint64) {
			if round == rounds {
				if left--; left == 0 {
					done <- struct{}{}
				}
				return
			}
			w.recv(p[1], 1000+round, func(wc *verbs.WC) {
				got[fmt.Sprint(wc.ID, wc.Opcode, wc.Err(), wc.QPNum == p[1].Num())]++
				post(round + 1)
			})
			wr := verbs.FetchAdd(at, 1, w.sge(8+8*i, 8))
			wr.ID = 3
			list := []verbs.SendWR{wr, verbs.Send()}
			n, err := w.d.PostSend(p[0], list, func(wc *verbs.WC) {
				got[fmt.Sprint(wc.ID, wc.Opcode, wc.Err(), wc.QPNum == p[0].Num())]++
			})
			require.NoError(t, err)
			require.Equal(t, 2, n)
			require.EqualValues(t, 3, list[0].ID, "the list of the program is not changed")
		}
		post(0)
	}
	require.NoError(t, w.d.Wait(w.ctx, done))
	for w.d.Outstanding() > 0 { // a Send's own completion can come after that of its receive
		one, cancel := context.WithTimeout(w.ctx, time.Millisecond)
		require.ErrorIs(t, w.d.Run(one), context.DeadlineExceeded)
		cancel()
	}
	want := map[string]int{fmt.Sprint(3, verbs.WCFetchAdd, nil, true): pairs * rounds,
		fmt.Sprint(0, verbs.WCSend, nil, true): pairs * rounds}
	for r := range rounds {
		want[fmt.Sprint(1000+r, verbs.WCRecv, nil, true)] = pairs
	}
	require.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
	require.EqualValues(t, pairs*rounds, binary.NativeEndian.Uint64(w.mr.Bytes()))
}

// TestDispatcherRun: Run ends with its context, other goroutines take over, and outstanding
// requests stay.
func TestDispatcherRun(t *testing.T) {
	w := newDispatching(t, 16, 1, 4, verbs.DispatcherConfig{})
	a, b := w.pair[0][0], w.pair[0][1]
	first, cancel := context.WithCancel(w.ctx)
	ran := make(chan error, 2)
	go func() { ran <- w.d.Run(first) }()
	second, cancelSecond := context.WithCancel(w.ctx)
	received := make(chan uint64, 4)
	w.recv(b, 1, func(wc *verbs.WC) { received <- wc.ID })
	w.recv(b, 2, func(wc *verbs.WC) { received <- wc.ID })
	w.send(a, 0, ignore)
	require.EqualValues(t, 1, <-received)
	go func() { ran <- w.d.Run(second) }()
	asleep.Until(t, 2, "verbs.(*Dispatcher).wait", "verbs_test.TestDispatcherRun")
	cancel()
	require.ErrorIs(t, <-ran, context.Canceled)
	w.send(a, 0, ignore)
	require.EqualValues(t, 2, <-received, "the other one has taken over")
	w.recv(b, 3, func(wc *verbs.WC) { received <- wc.ID })
	cancelSecond()
	require.ErrorIs(t, <-ran, context.Canceled)
	require.Equal(t, 1, w.d.Outstanding())
	w.send(a, 0, ignore)
	require.Empty(t, received, "nobody takes completions")
	ready := make(chan struct{}, 1)
	w.send(a, 0, func(*verbs.WC) { ready <- struct{}{} })
	w.recv(b, 4, func(wc *verbs.WC) { received <- wc.ID })
	require.NoError(t, w.d.Wait(w.ctx, ready))
	closed := make(chan struct{})
	close(closed)
	require.NoError(t, w.d.Wait(w.ctx, closed))
	gone, cancel := context.WithCancel(w.ctx)
	cancel()
	require.ErrorIs(t, w.d.Wait(gone, make(chan struct{})), context.Canceled)
	require.ErrorContains(t, w.d.Run(gone), "verbs: Dispatcher.Run on ")
}

// TestDispatcherFlush: the functions of requests that never begin are called too.
func TestDispatcherFlush(t *testing.T) {
	w := newDispatching(t, 64, 1, 16, verbs.DispatcherConfig{})
	b := w.pair[0][1]
	ready, ids := make(chan struct{}, 1), []uint64{}
	for i := range uint64(10) {
		w.recv(b, i, func(wc *verbs.WC) {
			require.ErrorIs(t, wc.Err(), verbs.WCWRFlushErr)
			if ids = append(ids, wc.ID); len(ids) == 10 {
				ready <- struct{}{}
			}
		})
	}
	require.NoError(t, b.Drain(w.ctx))
	require.NoError(t, w.d.Wait(w.ctx, ready))
	require.Equal(t, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, ids)
	require.Zero(t, w.d.Outstanding())
}

// TestDispatcherCause: what the device knows of a request is found by the completion that its
// function gets.
func TestDispatcherCause(t *testing.T) {
	w := newDispatching(t, 64, 1, 16, verbs.DispatcherConfig{})
	a := w.pair[0][0]
	ready := make(chan struct{}, 1)
	_, err := w.d.PostSend(a,
		[]verbs.SendWR{{ID: 7, Opcode: verbs.WRSend, SGL: []verbs.SGE{{Addr: 1, Length: 1, LKey: 0x2a}}}},
		func(wc *verbs.WC) {
			copied := *wc
			for _, wc := range []*verbs.WC{wc, &copied} {
				var request *verbs.RequestError
				require.ErrorAs(t, a.Cause(wc), &request)
				require.True(t, request.Known)
				require.Equal(t, uint64(7), request.ID)
				require.Equal(t, verbs.WCSend, request.Opcode)
			}
			require.NotRegexp(t, "[0-9]{7}", a.Err().Error(), "an ID that only the dispatcher knows")
			ready <- struct{}{}
		})
	require.NoError(t, err)
	require.NoError(t, w.d.Wait(w.ctx, ready))
}

// TestDispatcherInside: only code that a function of this dispatcher has called is inside.
func TestDispatcherInside(t *testing.T) {
	v, w := newDispatching(t, 64, 1, 16, verbs.DispatcherConfig{}),
		newDispatching(t, 64, 1, 16, verbs.DispatcherConfig{})
	require.False(t, w.d.Inside())
	ready := make(chan struct{}, 1)
	w.recv(w.pair[0][1], 1, func(*verbs.WC) {
		require.True(t, w.d.Inside())
		require.True(t, deep(200, w.d.Inside))
		require.False(t, v.d.Inside())
		other := make(chan bool)
		go func() { other <- w.d.Inside() }()
		require.False(t, <-other, "another goroutine")
		// In functions of both dispatchers, each is inside of its own.
		inV, done := make(chan struct{}), make(chan struct{}, 1)
		v.recv(v.pair[0][1], 1, func(*verbs.WC) {
			close(inV)
			time.Sleep(5 * time.Millisecond)
			done <- struct{}{}
		})
		v.send(v.pair[0][0], 2, ignore)
		go func() { _ = v.d.Wait(v.ctx, done) }()
		<-inV
		require.False(t, v.d.Inside())
		ready <- struct{}{}
	})
	w.send(w.pair[0][0], 2, ignore)
	require.NoError(t, w.d.Wait(w.ctx, ready))
	require.False(t, w.d.Inside())
}

// deep calls f with n more frames on the stack.
//
//go:noinline
func deep(n int, f func() bool) bool {
	if n == 0 {
		return f()
	}
	return deep(n-1, f)
}

// TestDispatcherFull: there are as many entries as the CQ has, and a user can set some aside.
func TestDispatcherFull(t *testing.T) {
	w := newDispatching(t, 4, 1, 16, verbs.DispatcherConfig{})
	a, b := w.pair[0][0], w.pair[0][1]
	require.Equal(t, 4, w.d.CQ().CQE())
	n, err := w.d.PostRecv(b, make([]verbs.RecvWR, 5), ignore)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Zero(t, n)
	n, err = w.d.PostRecv(b, make([]verbs.RecvWR, 3), ignore)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	ready := make(chan struct{}, 1)
	w.send(a, 1, func(*verbs.WC) { ready <- struct{}{} })
	n, err = w.d.PostSend(a, []verbs.SendWR{verbs.Send()}, ignore)
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.ErrorContains(t, err, "its CQ holds 4")
	require.Zero(t, n)
	require.NoError(t, w.d.Wait(w.ctx, ready))
	w.send(a, 1, ignore)

	require.NoError(t, w.d.Reserve(3))
	require.NoError(t, w.d.Reserve(1))
	var limit *verbs.LimitError
	require.ErrorAs(t, w.d.Reserve(1), &limit)
	require.Equal(t, verbs.LimitError{Name: "cqe", Limit: 4, Value: 5}, *limit)
	require.ErrorIs(t, w.d.Reserve(-1), verbs.ErrInvalid)
	w.d.Release(1)
	require.NoError(t, w.d.Reserve(1))
}

// TestDispatcherRefused: what the queue does not take leaves no entry behind.
func TestDispatcherRefused(t *testing.T) {
	w := newDispatching(t, 8, 1, 2, verbs.DispatcherConfig{})
	a := w.pair[0][0]
	other, err := w.pd.Context().CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	d, err := verbs.NewDispatcher(other, verbs.DispatcherConfig{})
	require.NoError(t, err)
	_, err = d.PostSend(a, []verbs.SendWR{verbs.Send()}, ignore)
	require.ErrorIs(t, err, verbs.ErrForeign)
	_, err = d.PostRecv(a, []verbs.RecvWR{{}}, ignore)
	require.ErrorIs(t, err, verbs.ErrForeign)
	_, err = w.d.PostSRQRecv(nil, []verbs.RecvWR{{}}, ignore)
	require.ErrorIs(t, err, verbs.ErrForeign)
	_, err = w.d.PostSend(nil, []verbs.SendWR{verbs.Send()}, ignore)
	require.ErrorIs(t, err, verbs.ErrForeign)
	_, err = w.d.PostSend(a, []verbs.SendWR{verbs.Send()}, nil)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.NoError(t, other.Close())
	require.ErrorIs(t, d.Run(w.ctx), verbs.ErrClosed)
	_, err = verbs.NewDispatcher(other, verbs.DispatcherConfig{})
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = verbs.NewDispatcher(nil, verbs.DispatcherConfig{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	ch, err := w.pd.Context().CreateCompChannel()
	require.NoError(t, err)
	shared, err := w.pd.Context().CreateCQ(verbs.CQConfig{Channel: ch})
	require.NoError(t, err)
	_, err = verbs.NewDispatcher(shared, verbs.DispatcherConfig{})
	require.ErrorIs(t, err, verbs.ErrSharedChannel)
	require.NoError(t, shared.Close())
	require.NoError(t, ch.Close())

	called := 0
	for range 10 {
		n, err := w.d.PostSend(a, []verbs.SendWR{{Opcode: 99}, verbs.Send()}, ignore)
		require.ErrorIs(t, err, verbs.ErrInvalid)
		require.Zero(t, n)
		require.Zero(t, w.d.Outstanding())
	}
	n, err := w.d.PostRecv(a, make([]verbs.RecvWR, 3), func(*verbs.WC) { called++ })
	require.ErrorIs(t, err, verbs.ErrQueueFull, "the queue of the QP has two places")
	require.ErrorContains(t, err, "Dispatcher.PostRecv")
	require.Equal(t, 2, n)
	require.Equal(t, 2, w.d.Outstanding())
	ready := make(chan struct{}, 1)
	require.NoError(t, a.Drain(w.ctx))
	w.send(a, 0, func(*verbs.WC) { ready <- struct{}{} })
	require.NoError(t, w.d.Wait(w.ctx, ready))
	require.Equal(t, 2, called)
}

// TestDispatcherOther: completions of requests that were posted without the dispatcher are not
// mistaken for others.
func TestDispatcherOther(t *testing.T) {
	var other []uint64
	for _, cfg := range []verbs.DispatcherConfig{{}, {Other: func(wc *verbs.WC) { other = append(other, wc.ID) }}} {
		w := newDispatching(t, 16, 1, 4, cfg)
		a, b := w.pair[0][0], w.pair[0][1]
		ready := make(chan struct{}, 2)
		w.recv(b, 1, func(*verbs.WC) { ready <- struct{}{} })
		w.recv(b, 2, func(*verbs.WC) { ready <- struct{}{} })
		_, err := a.PostSend([]verbs.SendWR{{ID: 1 << 40, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
		require.NoError(t, err)
		w.send(a, 5, ignore)
		if cfg.Other == nil {
			err := w.d.Run(w.ctx)
			require.ErrorIs(t, err, verbs.ErrInvalid)
			require.ErrorContains(t, err, "wr_id 0x10000000000")
		}
		require.NoError(t, w.d.Wait(w.ctx, ready), "the others are not lost")
		require.NoError(t, w.d.Wait(w.ctx, ready))
	}
	require.Equal(t, []uint64{1 << 40}, other)
}

// TestDispatcherPanic: a function that panics does not take the completions of others with it.
func TestDispatcherPanic(t *testing.T) {
	w := newDispatching(t, 16, 1, 4, verbs.DispatcherConfig{})
	a := w.pair[0][0]
	ready := make(chan struct{}, 1)
	w.recv(a, 1, func(*verbs.WC) { panic("a mistake") })
	w.recv(a, 2, func(*verbs.WC) { ready <- struct{}{} })
	require.NoError(t, a.Drain(w.ctx))
	require.PanicsWithValue(t, "a mistake", func() { _ = w.d.Run(w.ctx) })
	require.NoError(t, w.d.Wait(w.ctx, ready))
}
