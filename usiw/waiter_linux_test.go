// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// waits starts a goroutine in CQ.Wait, for a receive, and returns once it keeps the watch. The
// channel delivers the result of Wait.
func (s *side) waits(ctx context.Context, from *side) <-chan error {
	s.t.Helper()
	asked, got := make(chan struct{}), make(chan error)
	s.t.Cleanup(func() { close(asked) })
	go func() {
		for range asked {
			var wcs [1]verbs.WC
			_, err := s.rcq.Wait(ctx, wcs[:])
			if err == nil {
				err = wcs[0].Err()
			}
			got <- err
		}
	}()
	// The goroutine must return before the lease ends, which may fail on a busy machine: try until
	// it succeeds.
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		s.trusted()
		asked <- struct{}{}
		for range 100 {
			if s.keeper() == byWaiter {
				return got
			}
			time.Sleep(10 * time.Microsecond)
		}
		from.send(s)
		require.NoError(s.t, <-got)
	}
	require.FailNow(s.t, "the waiter does not become the waiter")
	return nil
}

// send sends a message for which the other side posts another receive.
func (s *side) send(to *side) {
	s.t.Helper()
	_, err := to.qp.PostRecv(make([]verbs.RecvWR, 1))
	require.NoError(s.t, err)
	_, err = s.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
	require.NoError(s.t, err)
}

// TestWaiter: a waiter keeps the watch and leaves; then the reader takes over and the peer is
// answered.
func TestWaiter(t *testing.T) {
	a, b := twoSides(t, Config{})
	require.Equal(t, byReader, b.keeper())
	for range 5 {
		got := b.waits(context.Background(), a)
		a.send(b)
		require.NoError(t, <-got)
		require.NotEqual(t, byWaiter, b.keeper())
		a.answeredBy(b)
		b.becomes(byReader)
		a.answeredBy(b)
	}
}

// TestWaiterAnswers: the waiter answers the peer while the program sleeps.
func TestWaiterAnswers(t *testing.T) {
	a, b := twoSides(t, Config{})
	got := b.waits(context.Background(), a)
	for range 10 {
		a.answeredBy(b)
	}
	require.Equal(t, byWaiter, b.keeper())
	a.send(b)
	require.NoError(t, <-got)
}

// TestWaiterCanceled cancels the waiter's context, and makes it wait with another.
func TestWaiterCanceled(t *testing.T) {
	a, b := twoSides(t, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	got := b.waits(ctx, a)
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	_, err := b.rcq.Wait(ctx, make([]verbs.WC, 1))
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	got = b.waits(ctx, a)
	a.send(b)
	require.NoError(t, <-got)
	a.answeredBy(b)
}

// TestWaiterEnd ends the connection while a waiter keeps the watch: it polls a flushed receive.
func TestWaiterEnd(t *testing.T) {
	for name, end := range map[string]func(a, b *side) error{
		"by the peer": func(a, b *side) error { return a.id.Close() },
		"by itself":   func(a, b *side) error { return b.id.Close() },
		"by its own QP": func(a, b *side) error {
			return b.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr},
				verbs.QPAttrState)
		},
		"by a reset":         func(a, b *side) error { return a.reset() },
		"when nobody is it":  func(a, b *side) error { a.send(b); return nil },
		"by closing the QPs": func(a, b *side) error { return errors.Join(a.qp.Close(), b.qp.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoSides(t, Config{})
			got := b.waits(context.Background(), a)
			require.NoError(t, end(a, b))
			if name == "when nobody is it" {
				require.NoError(t, <-got)
				require.NoError(t, a.id.Close())
				wc := verbs.WC{}
				for wc.Status == verbs.WCSuccess {
					wc = b.next(b.rcq)
				}
				require.ErrorIs(t, wc.Err(), verbs.WCWRFlushErr)
				return
			}
			require.ErrorIs(t, <-got, verbs.WCWRFlushErr)
		})
	}
}

// TestWaiterClosed closes the waiter's CQ, along with everything else, while the waiter keeps the
// watch.
func TestWaiterClosed(t *testing.T) {
	a, b := twoSides(t, Config{})
	got := b.waits(context.Background(), a)
	closed := make(chan error)
	go func() { closed <- b.scq.Context().CloseAll() }()
	require.Error(t, <-got)
	require.NoError(t, <-closed)
}

// TestWaiterOthers wakes the waiter for the completion of a request that another goroutine posted.
func TestWaiterOthers(t *testing.T) {
	a, b := twoSides(t, Config{})
	b.scq, b.rcq = b.rcq, b.scq
	ctx := context.Background()
	got := make(chan error)
	for tries := 0; ; tries++ {
		require.Less(t, tries, 10000)
		_, err := b.qp.PostSend(b.read(a))
		require.NoError(t, err)
		b.trusted()
		wc := b.next(b.rcq) // of the Read, because this is now also its send CQ
		require.NoError(t, wc.Err())
		go func() {
			var wcs [1]verbs.WC
			_, err := b.rcq.Wait(ctx, wcs[:])
			got <- errors.Join(err, wcs[0].Err())
		}()
		if time.Sleep(100 * time.Microsecond); b.keeper() == byWaiter {
			break
		}
		_, err = b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
		require.NoError(t, err)
		require.NoError(t, <-got)
		_, err = a.qp.PostRecv(make([]verbs.RecvWR, 1))
		require.NoError(t, err)
		wc = a.next(a.rcq) // otherwise its CQ would fill up
		require.NoError(t, wc.Err())
	}
	_, err := b.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
	require.NoError(t, err)
	require.NoError(t, <-got)
}

// TestWaiterSecondWaiter has a second goroutine sleep on the other CQ: neither is forgotten when
// the other's completion arrives.
func TestWaiterSecondWaiter(t *testing.T) {
	a, b := twoSides(t, Config{})
	got := b.waits(context.Background(), a)
	second := make(chan verbs.WC)
	go func() { second <- b.next(b.scq) }()
	require.Eventually(t, b.conn.q.sendCQ.isArmed, patience, 100*time.Microsecond)
	a.send(b)
	require.NoError(t, <-got)
	b.becomes(byReader)
	_, err := b.qp.PostSend(b.read(a))
	require.NoError(t, err)
	wc := <-second
	require.NoError(t, wc.Err())
	require.Equal(t, verbs.WCRDMARead, wc.Opcode)
}

// TestWaiterArmed arms another CQ while a waiter keeps the watch: the reader takes over, because a
// goroutine may be about to sleep for that CQ. While nobody keeps the watch and no goroutine is
// asleep, arming a CQ changes nothing.
func TestWaiterArmed(t *testing.T) {
	a, b := twoSides(t, Config{})
	got := b.waits(context.Background(), a)
	require.NoError(t, b.scq.ReqNotify(false))
	require.Equal(t, byWaiter, b.keeper())
	a.send(b)
	require.NoError(t, <-got)
	require.Equal(t, byReader, b.keeper())

	for b.conn.q.sendCQ.isArmed() { // a completion disarms it, unless it comes just before b goes to sleep
		b.answeredBy(a)
	}
	got = b.waits(context.Background(), a)
	a.send(b)
	require.NoError(t, <-got)
	require.NoError(t, b.scq.ReqNotify(false))
	b.answeredBy(a)
}

// TestWaiterPolled polls one CQ while the waiter sleeps on the other: the waiter wakes for
// completions of messages that the poller receives.
func TestWaiterPolled(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		got := b.waits(context.Background(), a)
		stop := make(chan struct{})
		var polling sync.WaitGroup
		polling.Go(func() {
			var wcs [1]verbs.WC
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = b.scq.Poll(wcs[:])
				}
			}
		})
		for range 10 {
			a.answeredBy(b)
			require.Equal(t, byWaiter, b.keeper())
		}
		a.send(b)
		require.NoError(t, <-got)
		close(stop)
		polling.Wait()
	}
}

// TestWaiterWoken counts completion events that wake a goroutine, which excludes those of a CQ on
// which none is asleep.
func TestWaiterWoken(t *testing.T) {
	a, b := twoSides(t, Config{})
	w := b.watch()
	require.NoError(t, b.rcq.ReqNotify(false))
	a.send(b)
	require.Equal(t, verbs.WCRecv, b.polledNext(b.rcq).Opcode)
	require.False(t, b.conn.q.recvCQ.isArmed())
	require.Zero(t, w.events.Load())
	got := b.waits(context.Background(), a) // also consumes the pending event
	events := w.events.Load()
	a.send(b)
	require.NoError(t, <-got)
	require.Equal(t, events+1, w.events.Load())
}

// TestWaiterMany exercises everything at once, for the race detector.
func TestWaiterMany(t *testing.T) {
	a, b := twoSides(t, Config{})
	const rounds = 2000
	errs := make(chan error, 4)
	run := func(f func(ctx context.Context) error) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
			defer cancel()
			errs <- f(ctx)
		}()
	}
	for _, d := range []struct{ from, to *side }{{a, b}, {b, a}} {
		// A sender that runs far ahead would fill the CQ of a receiver that pauses.
		ahead := make(chan struct{}, 64)
		run(func(ctx context.Context) error {
			for i := range rounds {
				wrs := []verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}}
				if i%3 == 0 {
					wrs = d.from.read(d.to)
				} else {
					select {
					case ahead <- struct{}{}:
					case <-ctx.Done():
						return ctx.Err()
					}
					if _, err := d.to.qp.PostRecv(make([]verbs.RecvWR, 1)); err != nil {
						return err
					}
				}
				if _, err := d.from.qp.PostSend(wrs); err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				var wcs [1]verbs.WC
				_, err := d.from.scq.Wait(ctx, wcs[:])
				cancel()
				if err = errors.Join(err, wcs[0].Err()); err != nil {
					return err
				}
			}
			return nil
		})
		run(func(ctx context.Context) error {
			for n := 0; n < rounds-(rounds+2)/3; {
				var wcs [4]verbs.WC
				k, err := d.to.rcq.Wait(ctx, wcs[:])
				if err != nil {
					return err
				}
				for range k {
					<-ahead
				}
				if n += k; n%100 < k {
					time.Sleep(2 * leaseTime)
				}
			}
			return nil
		})
	}
	for range 4 {
		require.NoError(t, <-errs, "a: %v, b: %v", a.qp.Err(), b.qp.Err())
	}
}

// TestAnswersOweNothing: responses to a program's requests need not be received while the program
// is away, unless a posted request waits for them.
func TestAnswersOweNothing(t *testing.T) {
	a, b := twoSides(t, Config{})
	for name, last := range map[string]verbs.SendFlags{"nothing waits": 0, "a fenced request waits": verbs.SendFence} {
		t.Run(name, func(t *testing.T) {
			rx := &a.conn.rx
			rx.mu.Lock() // the test receives
			defer rx.mu.Unlock()
			sge, err := a.mr.SGE(0, 8)
			require.NoError(t, err)
			wrs := make([]verbs.SendWR, 16)
			for i := range wrs {
				wrs[i] = verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled,
					SGL: []verbs.SGE{sge}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
			}
			wrs[len(wrs)-1].Flags |= last
			_, err = a.qp.PostSend(wrs)
			require.NoError(t, err)
			asked, done, wcs := 0, 0, make([]verbs.WC, 8)
			for limit := time.Now().Add(patience); done < len(wrs); {
				require.True(t, time.Now().Before(limit), "%d of %d complete", done, len(wrs))
				got, _ := a.conn.receiveLocked()
				asked += got.asked
				n, err := a.scq.Poll(wcs)
				require.NoError(t, err)
				for _, wc := range wcs[:n] {
					require.NoError(t, wc.Err())
				}
				done += n
			}
			require.Equal(t, last == verbs.SendFence, asked > 0, "asked %d times", asked)
		})
	}
}

// TestSleeperLetsOthersRun: a program sleeps in CompChannel.Wait, and in between polls until the CQ
// is empty. Unlike the polls of a program that polls continuously, such a poll does not yield:
// others ran while the program slept.
func TestSleeperLetsOthersRun(t *testing.T) {
	n := newSides(t, Config{})
	ch, err := n.v.CreateCompChannel()
	require.NoError(t, err)
	shared, err := n.v.CreateCQ(verbs.CQConfig{CQE: 4096, Channel: ch})
	require.NoError(t, err)
	a, b := n.join(n.side(nil, nil), n.side(nil, shared))
	c := b.qp.Provider().(*qp).recvCQ
	inVain := -2 * int64(time.Hour)
	poll := func() (got int) {
		got, err := shared.Poll(make([]verbs.WC, 1))
		require.NoError(t, err)
		return got
	}
	arm := func() {
		c.patience.Store(int64(time.Hour))
		c.yielded.Store(inVain)
		require.NoError(t, shared.ReqNotify(false))
		require.Zero(t, poll()) // right after ReqNotify this does nothing
	}
	for range 10 {
		arm()
		slept := make(chan error)
		go func() {
			_, err := ch.Wait(context.Background())
			slept <- err
		}()
		asleep.Until(t, 1, "usiw.TestSleeperLetsOthersRun", "usiw.(*channel).Wait")
		c.awaitLook(t)
		a.send(b)
		require.NoError(t, <-slept)
		require.Equal(t, 1, poll())
		require.Zero(t, poll())
		require.Zero(t, b.yielders(), "the poll has yielded")
	}
	arm()
	a.send(b)
	require.Eventually(t, c.ch.called, patience, 100*time.Microsecond)
	_, err = ch.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, inVain, c.yielded.Load(), "nobody has slept")
	require.Equal(t, 1, poll())
	require.Zero(t, poll())
	require.Equal(t, 1, b.yielders())
}

// TestSpinnerLetsOthersRun does the same for CQ.Wait, whose next call polls for Config.Spin. With
// one processor it does not poll.
func TestSpinnerLetsOthersRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	_, b := twoSides(t, Config{Spin: time.Microsecond})
	require.Zero(t, b.qp.Provider().(*qp).recvCQ.Spin(), "nobody else can run while it polls")
	runtime.GOMAXPROCS(2)
	a, b := twoSides(t, Config{Spin: time.Microsecond})
	c := b.qp.Provider().(*qp).recvCQ
	inVain := -2 * int64(time.Hour)
	for range 10 {
		slept := make(chan error)
		go func() {
			_, err := b.rcq.Wait(context.Background(), make([]verbs.WC, 1))
			slept <- err
		}()
		asleep.Until(t, 1, "usiw.TestSpinnerLetsOthersRun", "usiw.(*channel).wait")
		c.awaitLook(t)
		c.yielded.Store(inVain)
		a.send(b)
		require.NoError(t, <-slept)
		require.Greater(t, c.yielded.Load(), inVain, "the next poll will yield")
	}
}

// awaitLook returns once a goroutine that keeps the watch has called look, and is not merely about
// to.
func (c *cq) awaitLook(t *testing.T) {
	t.Helper()
	w := c.watch.Load()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.keeper != byWaiter || c.ch.looking.Load() != nil
	}, patience, 100*time.Microsecond)
}

// yielders returns how many descriptors the NIC has created to yield.
func (s *side) yielders() int {
	y := &s.conn.dev.yielder
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.made
}

// TestWaiterAllocatesNothing: sleeping for a completion allocates nothing.
func TestWaiterAllocatesNothing(t *testing.T) {
	a, b := twoSides(t, Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	defer cancel()
	wrs, wcs := a.read(b), make([]verbs.WC, 1)
	var failed error
	one := func() {
		_, err := a.qp.PostSend(wrs)
		if err == nil {
			_, err = a.scq.Wait(ctx, wcs)
		}
		failed = errors.Join(failed, err, wcs[0].Err())
	}
	for range 70 {
		one() // first the queues grow to their size
	}
	n := testing.AllocsPerRun(100, one)
	require.NoError(t, failed)
	if !race.Enabled {
		require.Zero(t, n)
	}
}
