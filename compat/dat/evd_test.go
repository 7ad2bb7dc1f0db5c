// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

// outcome is the result of a Wait.
type outcome struct {
	ev   dat.Event
	more int
	err  error
}

// waiter starts a Wait and returns once it sleeps, in addition to those started by others.
func waiter(t *testing.T, ctx context.Context, e *dat.EVD, timeout time.Duration, threshold int,
	others ...<-chan outcome) <-chan outcome {
	t.Helper()
	ch := make(chan outcome, 1)
	go startWait(ctx, e, timeout, threshold, ch)
	asleep.Until(t, 1+len(others), "dat_test.startWait", "dat.(*EVD).sleep")
	return ch
}

func startWait(ctx context.Context, e *dat.EVD, timeout time.Duration, threshold int, ch chan<- outcome) {
	ev, more, err := e.Wait(ctx, timeout, threshold)
	ch <- outcome{ev, more, err}
}

func result(t *testing.T, ch <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(patience):
		require.Fail(t, "the wait has not ended")
		return outcome{}
	}
}

// Wait returns once there are as many events as the threshold, and reports how many are left.
func TestThreshold(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		for i := range uint64(8) {
			require.NoError(t, b.ep.PostRecv(b.segment(0, 8), i, 0))
		}
		send := func(i uint64) {
			t.Helper()
			require.NoError(t, a.ep.PostSend(a.segment(0, 8), i, 0))
			dto(t, a.requests, i) // it has arrived
		}
		ch := waiter(t, t.Context(), b.recv, dat.Infinite, 3)
		send(0)
		send(1)
		require.Empty(t, ch, "there are two")
		send(2)
		o := result(t, ch)
		require.NoError(t, o.err)
		require.Equal(t, uint64(0), o.ev.DTO.Cookie)
		require.Equal(t, 2, o.more)

		// Events that are already there end a wait immediately; too few do not.
		ev, more, err := b.recv.Wait(t.Context(), dat.Infinite, 2)
		require.NoError(t, err)
		require.Equal(t, uint64(1), ev.DTO.Cookie)
		require.Equal(t, 1, more)
		_, more, err = b.recv.Wait(t.Context(), time.Millisecond, 2)
		require.ErrorIs(t, err, dat.TimeoutExpired)
		require.Equal(t, 1, more)
		_, more, err = b.recv.Wait(t.Context(), 0, 2)
		require.ErrorIs(t, err, dat.TimeoutExpired)
		require.Equal(t, 1, more)
		ev, err = b.recv.Dequeue()
		require.NoError(t, err)
		require.Equal(t, uint64(2), ev.DTO.Cookie)
		empty(t, b.recv)
	})
}

// What ends a Wait besides events, and what Wait refuses.
func TestWaitEnds(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a := newSide(t, dev, addr, options{})
		for _, kind := range []dat.EVDFlags{dat.EVDDTO, dat.EVDConnection, dat.EVDDTO | dat.EVDConnection | dat.EVDCR} {
			e, err := a.ia.CreateEVD(4, kind)
			require.NoError(t, err)
			q, err := e.Query()
			require.NoError(t, err)
			equal(t, dat.EVDParam{IA: a.ia, QLen: 4, Flags: kind}, q)
			wait := func(timeout time.Duration, threshold int) error {
				_, more, err := e.Wait(t.Context(), timeout, threshold)
				require.Zero(t, more)
				return err
			}
			require.ErrorIs(t, wait(0, 1), dat.TimeoutExpired)
			require.ErrorIs(t, wait(time.Millisecond, 1), dat.TimeoutExpired)
			require.ErrorIs(t, wait(-2, 1), dat.InvalidArg2)
			require.ErrorIs(t, wait(0, 0), dat.InvalidArg3)
			require.ErrorIs(t, wait(0, 5), dat.InvalidArg3)

			ctx, cancel := context.WithCancel(t.Context())
			ch := waiter(t, ctx, e, patience, 1)
			require.ErrorIs(t, wait(0, 1), dat.InvalidStateEVDWaiter)
			_, err = e.Dequeue()
			require.ErrorIs(t, err, dat.InvalidStateEVDWaiter)
			cancel()
			o := result(t, ch)
			require.ErrorIs(t, o.err, dat.InterruptedCall)
			require.ErrorIs(t, o.err, context.Canceled)

			ch = waiter(t, t.Context(), e, dat.Infinite, 1)
			require.NoError(t, e.SetUnwaitable())
			require.ErrorIs(t, result(t, ch).err, dat.InvalidStateEVDUnwaitable)
			require.ErrorIs(t, wait(0, 1), dat.InvalidStateEVDUnwaitable)
			empty(t, e)
			require.NoError(t, e.ClearUnwaitable())

			ch = waiter(t, t.Context(), e, dat.Infinite, 1)
			require.NoError(t, e.Free())
			require.ErrorIs(t, result(t, ch).err, dat.Abort)
			require.ErrorIs(t, wait(0, 1), dat.InvalidHandle)
		}
	})
}

// One EVD for everything: connection requests, connections, completions of both queues.
func TestOneEVD(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		all, err := b.ia.CreateEVD(64, dat.EVDDTO|dat.EVDCR|dat.EVDConnection)
		require.NoError(t, err)
		ep, err := b.ia.CreateEP(b.pz, all, all, all, dat.EPAttr{})
		require.NoError(t, err)
		require.NoError(t, ep.PostRecv(b.segment(0, 8), 1, 0))
		psp, err := b.ia.CreatePSP(0, all, dat.PSPConsumer)
		require.NoError(t, err)
		q, err := psp.Query()
		require.NoError(t, err)
		ch := waiter(t, t.Context(), all, dat.Infinite, 1)
		require.NoError(t, a.ep.Connect(addr, q.ConnQual, patience, nil))
		o := result(t, ch)
		require.NoError(t, o.err)
		require.Equal(t, dat.ConnectionRequestEvent, o.ev.Number)
		require.NoError(t, o.ev.CR.CR.Accept(ep, nil))
		wait(t, all, dat.ConnectionEstablished)
		wait(t, a.conn, dat.ConnectionEstablished)
		ch = waiter(t, t.Context(), all, dat.Infinite, 2)
		require.NoError(t, a.ep.PostSend(a.segment(0, 8), 3, 0))
		dto(t, a.requests, 3)
		require.Empty(t, ch)
		require.NoError(t, a.ep.Disconnect(0))
		o = result(t, ch) // a completion and a connection event
		require.NoError(t, o.err)
		require.Equal(t, 1, o.more)
		other, err := all.Dequeue()
		require.NoError(t, err)
		require.ElementsMatch(t, []dat.EventNumber{dat.DTOCompletionEvent, dat.ConnectionDisconnected},
			[]dat.EventNumber{o.ev.Number, other.Number})
	})
}

// An EVD without room for a connection request rejects it, and the asynchronous EVD reports that.
func TestNoRoomForRequest(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		crs, err := b.ia.CreateEVD(1, dat.EVDCR)
		require.NoError(t, err)
		psp, err := b.ia.CreatePSP(0, crs, 0)
		require.NoError(t, err)
		q, err := psp.Query()
		require.NoError(t, err)
		async, _, _, err := b.ia.Query()
		require.NoError(t, err)
		second, err := a.ia.CreateEP(a.pz, a.recv, a.requests, a.conn, dat.EPAttr{})
		require.NoError(t, err)
		require.NoError(t, a.ep.Connect(addr, q.ConnQual, patience, nil))
		require.NoError(t, second.Connect(addr, q.ConnQual, patience, nil))
		ev := wait(t, async, dat.AsyncEVDOverflow)
		require.Same(t, crs, ev.Async.EVD)
		refused := wait(t, a.conn, dat.ConnectionPeerRejected).Connection.EP
		cr := wait(t, crs, dat.ConnectionRequestEvent).CR.CR
		require.NoError(t, cr.Accept(b.ep, nil), "the first is as before")
		up := wait(t, a.conn, dat.ConnectionEstablished).Connection.EP
		require.True(t, refused == a.ep && up == second || refused == second && up == a.ep, "%v %v", refused, up)
		require.ErrorIs(t, async.Free(), dat.InvalidStateEVDAsync)
	})
}

// More completions than an EVD has room for: the overflow is reported, Wait returns the remaining
// events and then fails. The connection is lost.
func TestOverflow(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{attr: dat.EPAttr{MaxRecvDTOs: 1000}})
		small, err := b.ia.CreateEVD(1, dat.EVDDTO)
		require.NoError(t, err)
		ep, err := b.ia.CreateEP(b.pz, small, b.requests, b.conn, dat.EPAttr{MaxRecvDTOs: 4000})
		require.NoError(t, err)
		other, err := a.ia.CreateEP(a.pz, a.recv, a.requests, a.conn, dat.EPAttr{})
		require.NoError(t, err)
		b.ep, a.ep = ep, other
		connect(t, addr, a, b)
		async, _, _, err := b.ia.Query()
		require.NoError(t, err)
		posted := 0
		for ; posted < 4000; posted++ {
			require.NoError(t, ep.PostRecv(nil, uint64(posted), 0))
		}
		require.ErrorIs(t, ep.PostRecv(nil, 0, 0), dat.InsufficientResources)
		require.NoError(t, ep.Disconnect(0)) // all of them complete
		require.Same(t, small, wait(t, async, dat.AsyncEVDOverflow).Async.EVD)
		n := 0
		for ; ; n++ {
			if _, err = small.Dequeue(); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, dat.InvalidState)
		require.ErrorIs(t, err, verbs.ErrCQOverflow)
		require.Positive(t, n)
		require.Less(t, n, posted)
		_, _, err = small.Wait(t.Context(), patience, 1)
		require.ErrorIs(t, err, dat.InvalidState)
	})
}
