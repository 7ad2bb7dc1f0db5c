// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// limited returns a context for a wait that is expected to end by itself.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestEventsOfObjects: an event of every kind arrives with its object, or its port, and with
// nothing else.
func TestEventsOfObjects(t *testing.T) {
	var types []verbs.EventType
	for typ := verbs.EventCQErr; typ <= verbs.EventGIDChange; typ++ {
		types = append(types, typ)
	}
	require.Len(t, types, 19)
	for _, typ := range types {
		t.Run(fmt.Sprint(typ), func(t *testing.T) {
			r := newRig(t, "fake0")
			r.up(r.qp)
			want := verbs.AsyncEvent{Type: typ}
			var id uint32
			switch typ {
			case verbs.EventCQErr:
				want.CQ, want.Err, id = r.cq, verbs.ErrCQOverflow, lastID(t, "CQ")
			case verbs.EventSRQErr, verbs.EventSRQLimitReached:
				want.SRQ = r.srq()
				id = lastID(t, "SRQ")
			case verbs.EventDeviceFatal:
			case verbs.EventPortActive, verbs.EventPortErr, verbs.EventLIDChange, verbs.EventPKeyChange,
				verbs.EventSMChange,
				verbs.EventClientReregister, verbs.EventGIDChange:
				want.Port, id = 2, 2
			default:
				want.QP, id = r.qp, r.qp.Num()
			}
			require.Equal(t, 1, fakeverbs.InjectAsync(fakeverbs.Fake0, uint32(typ), id))
			ev, err := r.ctx.WaitEvent(limited(t))
			require.NoError(t, err)
			switch typ {
			case verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr:
				require.EqualError(t, ev.Err, typ.String())
				require.Equal(t, r.qp.Err(), ev.Err)
				require.Equal(t, verbs.QPStateErr, r.qp.State())
				ev.Err = nil
			case verbs.EventCQErr:
				require.Equal(t, verbs.QPStateErr, r.qp.State(), "its completions are lost")
				require.ErrorIs(t, r.qp.Err(), verbs.ErrCQOverflow)
			default:
				require.Equal(t, verbs.QPStateRTS, r.qp.State())
			}
			require.Equal(t, want, ev)
		})
	}
}

// lastID is the number of the newest object of a kind.
func lastID(t *testing.T, kind string) uint32 {
	t.Helper()
	id := fakeverbs.LastID(kind)
	require.NotZero(t, id)
	return id
}

// awaitReader returns when the reader of the device's events has found none.
func (r *rig) awaitReader() {
	r.Helper()
	require.Eventually(r, func() bool { return fakeverbs.Calls("ibv_get_async_event") > 0 }, 30*time.Second,
		100*time.Microsecond)
}

// portEvents makes n events, each of a port of its own number.
func portEvents(first, n int) {
	for i := range n {
		fakeverbs.InjectAsync(fakeverbs.Fake0, uint32(verbs.EventPortActive), uint32(first+i))
	}
}

// TestEventsKept: events wait for WaitEvent in their order. Of more than 1,024 the oldest are
// dropped.
func TestEventsKept(t *testing.T) {
	const kept = 1024
	r := newRig(t, "fake0")
	for _, n := range []int{3, kept, kept + 5} {
		before := fakeverbs.Calls("ibv_ack_async_event")
		portEvents(1, n)
		require.Eventually(t, func() bool { return fakeverbs.Calls("ibv_ack_async_event") == before+n }, 30*time.Second,
			time.Millisecond)
		// The last one has been read and may not be in the queue yet, so it is asked for like the
		// others.
		for port := max(1, n-kept+1); port <= n; port++ {
			ev, err := r.ctx.WaitEvent(limited(t))
			require.NoError(t, err)
			if port == 1 && ev.Port == 0 {
				continue
			}
			require.Equal(t, port, ev.Port, "of %d", n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	portEvents(1, 1)
	_, err := r.ctx.WaitEvent(ctx)
	require.ErrorIs(t, err, context.Canceled)
	ev, err := r.ctx.WaitEvent(limited(t))
	require.NoError(t, err, "who came with a context that had ended has taken none")
	require.Equal(t, 1, ev.Port)
}

// TestEventsReachAll: of several who wait each gets an event.
func TestEventsReachAll(t *testing.T) {
	r := newRig(t, "fake0")
	const waiters = 4
	var mu sync.Mutex
	var ports []int
	var wg sync.WaitGroup
	ctx := limited(t)
	for range waiters {
		wg.Go(func() {
			ev, err := r.ctx.WaitEvent(ctx)
			mu.Lock()
			defer mu.Unlock()
			if ports = append(ports, ev.Port); err != nil {
				t.Error(err)
			}
		})
	}
	portEvents(1, waiters)
	wg.Wait()
	slices.Sort(ports)
	require.Equal(t, []int{1, 2, 3, 4}, ports)
}

// TestEventsOfAGoneDevice: a device of which no events can be read any more has failed; that is the
// last event.
func TestEventsOfAGoneDevice(t *testing.T) {
	r := newRig(t, "fake0")
	r.awaitReader()
	fakeverbs.Fail("ibv_get_async_event", 1, syscall.EIO)
	portEvents(1, 2) // wakes the reader
	ev, err := r.ctx.WaitEvent(limited(t))
	require.NoError(t, err)
	require.Equal(t, verbs.EventDeviceFatal, ev.Type)
	require.ErrorIs(t, ev.Err, syscall.EIO)
	require.ErrorContains(t, ev.Err, "ibv_get_async_event")
	calls := fakeverbs.Calls("ibv_get_async_event")
	done := make(chan error)
	go func() {
		_, err := r.ctx.WaitEvent(limited(t))
		done <- err
	}()
	require.NoError(t, r.ctx.CloseAll())
	require.ErrorIs(t, <-done, verbs.ErrClosed)
	require.Equal(t, calls, fakeverbs.Calls("ibv_get_async_event"))
}

// TestEventInterrupted: a signal that comes while an event is read is no failure.
func TestEventInterrupted(t *testing.T) {
	r := newRig(t, "fake0")
	r.awaitReader()
	fakeverbs.Fail("ibv_get_async_event", 1, syscall.EINTR)
	portEvents(1, 1)
	ev, err := r.ctx.WaitEvent(limited(t))
	require.NoError(t, err)
	require.Equal(t, verbs.AsyncEvent{Type: verbs.EventPortActive, Port: 1}, ev)

	fakeverbs.Fail("ibv_get_cq_event", 1, syscall.EINTR)
	r.up(r.qp)
	got := make(chan error)
	go func() {
		_, err := r.cq.Wait(limited(t), make([]verbs.WC, 1))
		got <- err
	}()
	r.post(r.qp, writes(r.mr, 1)...)
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	require.NoError(t, <-got)

	fakeverbs.Fail("ibv_get_cq_event", 1, syscall.EIO)
	go func() {
		_, err := r.cq.Wait(limited(t), make([]verbs.WC, 1))
		got <- err
	}()
	err = <-got
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, "ibv_get_cq_event")
	require.False(t, errors.Is(err, verbs.ErrClosed))
}
