// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

var eventTests = []test{
	{"WaitCancel", eventWaitCancel},
	{"CloseWakesWaiters", eventCloseWakesWaiters},
	{"OwnContextOnly", eventOwnContextOnly},
	{"NamesTheQP", eventNamesTheQP},
	{"OrderlyEnd", eventOrderlyEnd},
}

// noFailure requires that there is no failure event.
func (h *host) noFailure() {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), quietTime)
	defer cancel()
	for {
		ev, err := h.ctx.WaitEvent(ctx)
		if err != nil {
			requireErr(h.T, err, context.DeadlineExceeded)
			return
		}
		harmless := []verbs.EventType{verbs.EventCommEst, verbs.EventSQDrained, verbs.EventQPLastWQEReached}
		require.Contains(h, harmless, ev.Type, ev.String())
	}
}

func eventWaitCancel(w *world) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), quietTime)
	defer cancel()
	_, err := w.a.ctx.WaitEvent(ctx)
	requireErr(w.T, err, context.DeadlineExceeded)
	ctx, cancel = context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := w.a.ctx.WaitEvent(ctx)
		done <- err
	}()
	asleep.Until(w.T, 1, "verbs.(*Context).WaitEvent", "verbstest.eventWaitCancel")
	cancel()
	requireErr(w.T, closes(w.T, done, "a cancelled WaitEvent"), context.Canceled)
	return tested
}

func eventCloseWakesWaiters(w *world) outcome {
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	const waiters = 3
	ends := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := c.WaitEvent(context.Background())
			ends <- err
		}()
	}
	asleep.Until(w.T, waiters, "verbs.(*Context).WaitEvent", "verbstest.eventCloseWakesWaiters")
	require.NoError(w, c.Close())
	for range waiters {
		requireClosed(w.T, closes(w.T, ends, "a waiter of a closed context"))
	}
	return tested
}

// eventOwnContextOnly: only the QP's own context gets its events, and closing the QP discards those
// not yet waited for (ibv_destroy_qp(3)).
func eventOwnContextOnly(w *world) outcome {
	o := w.other()
	p := w.pair(pairConfig{})
	p.deny(p.b.mem, p.b.mem.at(scratch))
	time.Sleep(quietTime) // for the event to arrive
	for _, s := range []*side{p.a, p.b} {
		require.NoError(w, s.id.Close())
		require.NoError(w, s.qp.Close())
	}
	w.a.noFailure()
	w.b.noFailure()
	p = w.pair(pairConfig{})
	p.deny(p.b.mem, p.b.mem.at(scratch))
	if _, ok := w.b.failureEvent(); !ok {
		w.without("qp-error-event")
	}
	o.noFailure()
	return tested
}

func eventNamesTheQP(w *world) outcome {
	pairs := []*pair{w.pair(pairConfig{}), w.pair(pairConfig{}), w.pair(pairConfig{})}
	for _, i := range []int{1, 0, 2} {
		p := pairs[i]
		p.deny(p.b.mem, p.b.mem.at(scratch))
		ev, ok := w.b.failureEvent()
		if !ok {
			w.without("qp-error-event")
			return noted
		}
		require.Same(w, p.b.qp, ev.QP)
		require.NotEmpty(w, ev.String())
		if w.f.userSpace() {
			require.ErrorIs(w, ev.Err, &verbs.TerminateError{Layer: 1, Type: 1, Code: 1})
			require.ErrorContains(w, ev.Err, "1/1/01")
		} else if p.iwarp() {
			w.without("terminate-reason")
		}
	}
	w.b.noFailure()
	return tested
}

// failureEvent waits for the event of a failed QP. Some kernel drivers do not send it.
func (h *host) failureEvent() (verbs.AsyncEvent, bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), waitLimit/4)
	defer cancel()
	for {
		ev, err := h.ctx.WaitEvent(ctx)
		if err != nil {
			requireErr(h.T, err, context.DeadlineExceeded)
			require.True(h, ofKernel(h.ctx.Device()), "no event")
			return ev, false
		}
		switch ev.Type {
		case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
			return ev, true
		}
	}
}

// eventOrderlyEnd: an orderly close is not a failure.
func eventOrderlyEnd(w *world) outcome {
	p := w.pair(pairConfig{})
	p.works()
	require.NoError(w, p.a.id.Disconnect())
	closes(w.T, p.b.id.Done(), "the end of the connection at the peer")
	w.a.noFailure()
	w.b.noFailure()
	return tested
}
