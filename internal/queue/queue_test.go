// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/lifetime"
)

// TestRing compares a ring with a slice while it grows and its positions wrap around.
func TestRing(t *testing.T) {
	for _, n := range []int{0, 1, 16, 17, 100} {
		r, want := Grown[int](n), []int{}
		if n == 0 {
			r = Ring[int]{}
		}
		require.GreaterOrEqual(t, len(r.Places()), n)
		rng := rand.New(rand.NewPCG(7306, uint64(n)))
		for i := range 20000 {
			switch op := rng.IntN(100); {
			case op == 0 && i%16 == 0:
				r.Clear()
				want = want[:0]
			case op < 4:
				more := []int{-i, i, 7306}[:rng.IntN(4)]
				r.Append(more)
				want = append(want, more...)
			case op < 8:
				to := make([]int, rng.IntN(4))
				n := r.Take(to)
				require.Equal(t, min(len(to), len(want)), n)
				require.Equal(t, want[:n], to[:n])
				want = want[n:]
			case op < 50+10*(i/5000%2): // alternates between growing and not
				r.Push(i)
				want = append(want, i)
			case len(want) == 0:
			case op < 95:
				require.Equal(t, want[0], r.Pop())
				want = want[1:]
			default:
				r.Drop()
				want = want[:len(want)-1]
			}
			require.Equal(t, len(want), r.Len())
			if len(want) > 0 {
				at := rng.IntN(len(want))
				require.Equal(t, want[at], *r.At(at))
			}
		}
		require.Greater(t, len(r.Places()), 100, "it has grown")
		for _, v := range want {
			require.Equal(t, v, r.Pop())
		}
	}
}

// TestRingPlaces checks that a place is returned as its last user left it, and moves along when the
// ring grows.
func TestRingPlaces(t *testing.T) {
	r := Grown[[]byte](least)
	for i := range r.Places() {
		r.Places()[i] = make([]byte, 0, 1+i)
	}
	for i := range 3 * least {
		p := r.Add()
		require.Equal(t, 1+i%least, cap(*p))
		r.Pop()
	}
	for range least + 1 {
		r.Add()
	}
	require.Len(t, r.Places(), 2*least)
	for i := range least {
		require.Equal(t, 1+i, cap(*r.At(i)))
	}
	require.Zero(t, cap(*r.At(least)), "a new place")
}

func TestRingAlloc(t *testing.T) {
	r := Grown[int](100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range 100 {
			r.Push(i)
		}
		for range 100 {
			r.Pop()
		}
	}))
}

// TestEvents checks that events are returned in order, and that the oldest are lost on overflow.
func TestEvents(t *testing.T) {
	e := NewEvents(func(int) bool { return false })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, n := range []int{1, 3, backlog, backlog + 5} {
		for i := range n {
			e.Post(i)
		}
		for i := max(0, n-backlog); i < n; i++ {
			ev, err := e.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, i, ev)
		}
	}
	over, end := context.WithCancel(ctx)
	end()
	_, err := e.Wait(over)
	require.ErrorIs(t, err, context.Canceled)
	e.Close()
	_, err = e.Wait(ctx)
	require.ErrorIs(t, err, lifetime.ErrClosed)
}

// TestEventsKeepNothing checks that an event that was returned or lost keeps no handle alive.
func TestEventsKeepNothing(t *testing.T) {
	e := NewEvents(func(*int) bool { return false })
	for i := range backlog + 1 {
		e.Post(&i)
	}
	for range backlog {
		_, err := e.Wait(t.Context())
		require.NoError(t, err)
	}
	for _, p := range e.queued.Places() {
		require.Nil(t, p)
	}
}

// TestEventsOfClosed checks that events of a closed object are neither queued nor retained, and
// that the others stay in order.
func TestEventsOfClosed(t *testing.T) {
	closed := -1
	e := NewEvents(func(p *int) bool { return *p == closed })
	next := func() int {
		v, err := e.Wait(t.Context())
		require.NoError(t, err)
		return *v
	}
	for i := range 40 {
		v := i % 4
		e.Post(&v)
	}
	closed = 1
	e.Sweep()
	one, zero := 1, 0
	e.Post(&one)
	for i := range 30 {
		require.Equal(t, []int{0, 2, 3}[i%3], next())
	}
	e.Post(&zero)
	closed = 0
	e.Sweep()
	over, end := context.WithCancel(t.Context())
	end()
	_, err := e.Wait(over)
	require.ErrorIs(t, err, context.Canceled)
	for _, p := range e.queued.Places() {
		require.Nil(t, p)
	}
}

// TestEventsReachAll checks that each of several waiting goroutines gets an event, and that Close
// releases the rest.
func TestEventsReachAll(t *testing.T) {
	e := NewEvents(func(int) bool { return false })
	var mu sync.Mutex
	var got []int
	var wg sync.WaitGroup
	const waiters, events = 6, 4
	for range waiters {
		wg.Go(func() {
			ev, err := e.Wait(context.Background())
			if err != nil {
				ev = -1
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, ev)
		})
	}
	asleep.Until(t, waiters, "queue.(*Events", "queue.TestEventsReachAll")
	e.mu.Lock() // all arrive before one of the goroutines wakes
	for i := range events {
		e.queued.Push(i)
	}
	e.mu.Unlock()
	Signal(e.ready)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == events
	}, 30*time.Second, time.Millisecond)
	e.Close()
	wg.Wait()
	slices.Sort(got)
	require.Equal(t, []int{-1, -1, 0, 1, 2, 3}, got)
}

// TestArm checks the notification state after requests, and which completions then generate an
// event.
func TestArm(t *testing.T) {
	const any, solicited = false, true
	for _, c := range []struct {
		requests    []bool
		plain, with bool // events generated by an ordinary and by a solicited completion
	}{
		{nil, false, false},
		{[]bool{solicited}, false, true},
		{[]bool{any}, true, true},
		{[]bool{solicited, any}, true, true},
		{[]bool{any, solicited}, true, true},
	} {
		a := Disarmed
		for _, r := range c.requests {
			a = a.With(r)
		}
		require.Equal(t, c.plain, a.Fires(false), c)
		require.Equal(t, c.with, a.Fires(true), c)
	}
}

func TestSignal(t *testing.T) {
	ch := make(chan struct{}, 1)
	Signal(ch)
	Signal(ch)
	<-ch
	require.Empty(t, ch)
}

func TestAwait(t *testing.T) {
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, Await(ctx, closed))
	cancel()
	require.ErrorIs(t, Await(ctx, open), context.Canceled)
	for range 50 { // select chooses randomly between two that are ready
		require.NoError(t, Await(ctx, closed))
	}
}
