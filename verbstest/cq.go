// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

var cqTests = []test{
	{"Create", cqCreate},
	{"Poll", cqPoll},
	{"Wait", cqWait},
	{"WaitCancel", cqWaitCancel},
	{"OneForBoth", cqOneForBoth},
	{"SeveralQPs", cqSeveralQPs},
	{"SeveralWaiters", cqSeveralWaiters},
	{"CancelOneWaiter", cqCancelOneWaiter},
	{"ConcurrentPolls", cqConcurrentPolls},
	{"CloseWakesWaiters", cqCloseWakesWaiters},
	{"Overflow", cqOverflow},
	{"OverflowWakes", cqOverflowWakes},
}

func cqCreate(w *world) outcome {
	for _, cqe := range []int{0, 1, 3, 1000} {
		cq := w.a.createCQ(verbs.CQConfig{CQE: cqe})
		require.GreaterOrEqual(w, cq.CQE(), max(cqe, 1))
		if cqe == 0 {
			require.GreaterOrEqual(w, cq.CQE(), verbs.DefaultCQE)
		}
		require.Same(w, w.a.ctx, cq.Context())
	}
	_, err := w.a.ctx.CreateCQ(verbs.CQConfig{CQE: -1})
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "-1")
	return tested
}

func cqPoll(w *world) outcome {
	p := w.pair(pairConfig{})
	var wcs [16]verbs.WC
	for _, cq := range []*verbs.CQ{p.a.scq, p.a.rcq} {
		n, err := cq.Poll(wcs[:])
		require.NoError(w, err)
		require.Zero(w, n)
	}
	for i := range 10 {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
	require.Zero(w, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	n, err := p.a.scq.Poll(nil)
	require.NoError(w, err)
	require.Zero(w, n, "no room")
	for next := 1; next < 10; {
		n, err := p.a.scq.Poll(wcs[:3])
		require.NoError(w, err)
		require.LessOrEqual(w, n, 3)
		for _, wc := range wcs[:n] {
			require.EqualValues(w, next, p.a.ok(wc, verbs.WCRDMAWrite).ID)
			next++
		}
	}
	return tested
}

// cqWait: Wait immediately returns a completion that is in the queue; otherwise it waits for one.
func cqWait(w *world) outcome {
	p := w.pair(pairConfig{})
	var wcs [16]verbs.WC
	_, err := p.b.rcq.Wait(w.Context(), nil)
	requireErr(w.T, err, verbs.ErrInvalid)
	for i := range 5 {
		p.b.recv(uint64(i))
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			n, err := p.b.rcq.Wait(ctx, wcs[:])
			done <- result{n, err}
		}()
		if i > 0 {
			asleep.Until(w.T, 1, "verbs.(*CQ).Wait", "verbstest.cqWait")
		}
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		got := closes(w.T, done, "CQ.Wait")
		require.NoError(w, got.err)
		require.Equal(w, 1, got.n)
		require.EqualValues(w, i, p.b.ok(wcs[0], verbs.WCRecv).ID)
	}
	// A completion in the queue is returned even if the context is done.
	p.a.post(verbs.SendWR{ID: 5, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled},
		verbs.SendWR{ID: 6, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	p.a.sent()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for n := 0; n == 0; {
		if n, err = p.a.scq.Wait(ctx, wcs[:]); n == 0 {
			require.ErrorIs(w, err, context.Canceled) // not there yet
		}
	}
	require.EqualValues(w, 6, wcs[0].ID)
	return tested
}

func cqWaitCancel(w *world) outcome {
	cq := w.a.createCQ(verbs.CQConfig{})
	var wcs [1]verbs.WC
	ctx, cancel := context.WithTimeout(context.Background(), quietTime)
	defer cancel()
	_, err := cq.Wait(ctx, wcs[:])
	requireErr(w.T, err, context.DeadlineExceeded)

	ctx, cancel = context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := cq.Wait(ctx, wcs[:])
		done <- err
	}()
	asleep.Until(w.T, 1, "verbs.(*CQ).Wait", "verbstest.cqWaitCancel")
	cancel()
	requireErr(w.T, closes(w.T, done, "a cancelled Wait"), context.Canceled)
	_, err = cq.Wait(ctx, wcs[:])
	requireErr(w.T, err, context.Canceled)
	n, err := cq.Poll(wcs[:])
	require.NoError(w, err)
	require.Zero(w, n)
	return tested
}

func cqOneForBoth(w *world) outcome {
	p := w.pair(pairConfig{oneCQ: true})
	require.Same(w, p.a.qp.SendCQ(), p.a.qp.RecvCQ())
	p.a.recv(1)
	p.b.recv(2)
	p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	p.b.ok(p.b.next(p.b.scq), verbs.WCRecv)
	p.b.post(verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	for range 2 {
		switch wc := p.a.next(p.a.scq); wc.ID {
		case 1:
			p.a.ok(wc, verbs.WCRecv)
		default:
			require.EqualValues(w, 3, p.a.ok(wc, verbs.WCSend).ID)
		}
	}
	require.EqualValues(w, 4, p.b.ok(p.b.next(p.b.scq), verbs.WCSend).ID)
	return tested
}

// cqSeveralQPs: completions contain the number of their QP.
func cqSeveralQPs(w *world) outcome {
	one, two := w.pair(pairConfig{}), w.pair(pairConfig{})
	cq := w.a.createCQ(verbs.CQConfig{CQE: 64})
	third := w.unconnected(pairConfig{})
	shared := w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: cq, RecvCQ: one.a.rcq})
	third.a.qp, third.a.scq, third.a.rcq = shared, cq, one.a.rcq
	third.connect(pairConfig{})
	nums := map[uint32]uint64{one.a.qp.Num(): 100, shared.Num(): 200}
	require.Len(w, nums, 2)
	one.a.recv(100)
	third.a.recv(200)
	third.b.post(verbs.SendWR{Opcode: verbs.WRSend})
	one.b.post(verbs.SendWR{Opcode: verbs.WRSend})
	for range 2 {
		wc := w.a.next(one.a.rcq)
		require.Equal(w, verbs.WCSuccess, wc.Status)
		require.Equal(w, nums[wc.QPNum], wc.ID)
		delete(nums, wc.QPNum)
	}
	require.Empty(w, nums)
	two.works()
	return tested
}

// cqSeveralWaiters: each completion goes to one of the waiters.
func cqSeveralWaiters(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 128, MaxRecvWR: 128}})
	const count, waiters = 100, 4
	for i := range count {
		p.b.recv(uint64(i))
	}
	ids := make(chan uint64, count)
	ends := make(chan error, waiters)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for range waiters {
		go func() {
			for {
				var wcs [3]verbs.WC
				n, err := p.b.rcq.Wait(ctx, wcs[:])
				if err != nil {
					ends <- err
					return
				}
				for _, wc := range wcs[:n] {
					ids <- wc.ID
				}
			}
		}()
	}
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend})
		if i%10 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	seen := make(map[uint64]bool)
	for range count {
		id := closes(w.T, ids, "a completion")
		require.False(w, seen[id], "completion %d came twice", id)
		seen[id] = true
	}
	cancel()
	for range waiters {
		requireErr(w.T, closes(w.T, ends, "a waiter"), context.Canceled)
	}
	return tested
}

// cqCancelOneWaiter: a canceled waiter does not consume another waiter's event.
func cqCancelOneWaiter(w *world) outcome {
	p := w.pair(pairConfig{})
	for range 10 {
		p.b.recv(1)
		ctx, cancel := context.WithCancel(context.Background())
		gone, got := make(chan error, 1), make(chan error, 1)
		wait := func(ctx context.Context, result chan error) {
			var wcs [1]verbs.WC
			n, err := p.b.rcq.Wait(ctx, wcs[:])
			if err == nil && n != 1 {
				err = fmt.Errorf("%d completions", n)
			}
			result <- err
		}
		limited, stop := context.WithTimeout(context.Background(), waitLimit)
		go wait(ctx, gone)
		go wait(limited, got)
		asleep.Until(w.T, 2, "verbs.(*CQ).Wait", "verbstest.cqCancelOneWaiter")
		cancel()
		p.a.post(verbs.SendWR{Opcode: verbs.WRSend})
		if err := closes(w.T, gone, "the cancelled waiter"); err == nil {
			p.b.recv(1) // it got the completion before it was canceled: send another one for the other waiter
			p.a.post(verbs.SendWR{Opcode: verbs.WRSend})
		} else {
			requireErr(w.T, err, context.Canceled)
		}
		require.NoError(w, closes(w.T, got, "the other waiter"))
		stop()
	}
	return tested
}

func cqConcurrentPolls(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 256, MaxRecvWR: 256}})
	const count, pollers = 200, 4
	ids := make(chan uint64, count)
	stop := make(chan struct{})
	ends := make(chan error, pollers)
	for range pollers {
		go func() {
			for {
				select {
				case <-stop:
					ends <- nil
					return
				default:
				}
				var wcs [4]verbs.WC
				n, err := p.a.scq.Poll(wcs[:])
				if err != nil {
					ends <- err
					return
				}
				for _, wc := range wcs[:n] {
					ids <- wc.ID
				}
				if n == 0 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	}
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	}
	seen := make(map[uint64]bool)
	for range count {
		id := closes(w.T, ids, "a completion")
		require.False(w, seen[id])
		seen[id] = true
	}
	close(stop)
	for range pollers {
		require.NoError(w, closes(w.T, ends, "a poller"))
	}
	return tested
}

func cqCloseWakesWaiters(w *world) outcome {
	cq, err := w.a.ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(w, err)
	const waiters = 4
	ends := make(chan error, waiters)
	for range waiters {
		go func() {
			var wcs [1]verbs.WC
			_, err := cq.Wait(context.Background(), wcs[:])
			ends <- err
		}()
	}
	asleep.Until(w.T, waiters, "verbs.(*CQ).Wait", "verbstest.cqCloseWakesWaiters")
	require.NoError(w, cq.Close())
	for range waiters {
		requireClosed(w.T, closes(w.T, ends, "a waiter of a closed CQ"))
	}
	return tested
}

// overflow fills the send CQ of a pair beyond its capacity. It reports false, and records that, if
// a kernel device does not accept enough requests without polling.
func (p *pair) overflow() bool {
	p.Helper()
	deadline := time.Now().Add(waitLimit)
	for sent := 0; sent <= p.a.scq.CQE(); sent++ {
		wr := verbs.SendWR{ID: uint64(sent), Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
		if n, err := p.a.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			// The queue is as long as the CQ: wait for free entries.
			require.ErrorIs(p, err, verbs.ErrQueueFull)
			require.Zero(p, n)
			time.Sleep(time.Millisecond)
			sent--
			if time.Now().After(deadline) {
				require.False(p, p.f.userSpace(), "the queue stays full")
				p.without("cq-overflow")
				return false
			}
		}
	}
	return true
}

// cqOverflow: completions are lost if the CQ is full; the context, the QPs and Poll report that.
func cqOverflow(w *world) outcome {
	by := w.pair(pairConfig{})
	p := w.pair(pairConfig{cqe: 4})
	p.b.recv(1)
	p.a.recv(2)
	if !p.overflow() {
		return noted
	}

	ctx, cancel := context.WithTimeout(w.Context(), waitLimit)
	defer cancel()
	for {
		ev, err := w.a.ctx.WaitEvent(ctx)
		require.NoError(w, err)
		if ev.Type == verbs.EventCQErr {
			require.Same(w, p.a.scq, ev.CQ)
			require.Nil(w, ev.QP)
			break
		}
	}
	p.disconnected()
	require.Equal(w, verbs.QPStateErr, p.a.qp.State())
	p.a.flushed(p.a.rcq, 2)
	p.b.flushed(p.b.rcq, 1)
	wcs := make([]verbs.WC, p.a.scq.CQE()+2)
	n, err := p.a.scq.Poll(wcs)
	require.NoError(w, err, "what the queue held")
	if w.f.userSpace() {
		require.Equal(w, p.a.scq.CQE(), n)
	} else {
		require.GreaterOrEqual(w, n, p.a.scq.CQE()) // rxe has one entry more than it reports
	}
	for i, wc := range wcs[:n] {
		if wc.Status == verbs.WCWRFlushErr && i >= p.a.scq.CQE() {
			break // it was in the additional entry
		}
		require.EqualValues(w, i, p.a.ok(wc, verbs.WCRDMAWrite).ID)
	}
	for range 2 {
		n, err = p.a.scq.Poll(wcs)
		require.Zero(w, n)
		requireErr(w.T, err, verbs.ErrCQOverflow)
	}
	by.works()
	w.recvOverflow()
	by.works()
	return tested
}

// recvOverflow fills the receive CQ of a pair beyond its capacity, so that the completion of the
// last message is lost. Kernel devices have one entry more than they report, and rxe does not
// acknowledge the last message.
func (w *world) recvOverflow() {
	w.Helper()
	const cqe = 4
	most := w.b.createCQ(verbs.CQConfig{CQE: cqe}).CQE()
	count := most + 1
	if !w.f.userSpace() {
		count++
	}
	p := w.pair(pairConfig{cqe: cqe, cap: verbs.QPCap{MaxRecvWR: count + 1}})
	require.Equal(w, most, p.b.rcq.CQE())
	m := w.b.alloc(8*(count+1), verbs.AccessLocalWrite)
	p.a.recv(9)
	for i := range count + 1 {
		p.b.recv(uint64(i), m.sge(8*i, 8))
	}
	rest := m.keepsBut(0, 8*count)
	var list []verbs.SendWR
	for i := range count {
		wr := verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, SGL: p.a.mem.sgl(i%1000, 8)}
		if list = append(list, wr); i < most-1 && len(list) < 32 {
			continue
		}
		list[len(list)-1].Flags = verbs.SendSignaled
		p.a.post(list...)
		list = list[:0]
		if wc := p.a.sent(); i < most || w.f.userSpace() {
			require.EqualValues(w, i, p.a.ok(wc, verbs.WCSend).ID)
		}
	}
	ev, ok := w.b.eventOf(verbs.EventCQErr, waitLimit)
	require.True(w, ok, "no event")
	require.Same(w, p.b.rcq, ev.CQ)
	p.disconnected()
	require.Equal(w, verbs.QPStateErr, p.b.qp.State())
	p.a.flushed(p.a.rcq, 9)
	wcs := make([]verbs.WC, most)
	n, err := p.b.rcq.Poll(wcs)
	require.NoError(w, err)
	require.Equal(w, most, n)
	for i, wc := range wcs {
		require.EqualValues(w, i, p.b.ok(wc, verbs.WCRecv).ID)
		m.holds(8*i, p.a.mem.Bytes()[i%1000:i%1000+8])
	}
	n, err = p.b.rcq.Poll(wcs[:1])
	if n == 1 { // it was in the additional entry
		require.NoError(w, err)
		require.False(w, w.f.userSpace())
		n, err = p.b.rcq.Poll(wcs[:1])
	}
	require.Zero(w, n)
	requireErr(w.T, err, verbs.ErrCQOverflow)
	rest()
}

// cqOverflowWakes: an overflow unblocks Wait.
func cqOverflowWakes(w *world) outcome {
	p := w.pair(pairConfig{cqe: 4})
	if !p.overflow() {
		return noted
	}
	if !w.f.userSpace() || !w.iwarp() {
		// The last completion may arrive later; if the program polls in time, nothing is lost.
		_, ok := w.a.eventOf(verbs.EventCQErr, waitLimit)
		require.True(w, ok, "no event")
	}
	ctx, cancel := context.WithTimeout(w.Context(), waitLimit)
	defer cancel()
	for {
		var wcs [2]verbs.WC
		if _, err := p.a.scq.Wait(ctx, wcs[:]); errors.Is(err, verbs.ErrCQOverflow) {
			return tested
		} else {
			require.NoError(w, err)
		}
	}
}
