// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// newPool makes a pool.
func newPool(t *testing.T, size, count int) *verbs.Pool {
	t.Helper()
	pd, err := open(t, newNIC(t, usiw.Config{})).AllocPD()
	require.NoError(t, err)
	p, err := pd.AllocPool(size, count, verbs.AccessLocalWrite)
	require.NoError(t, err)
	return p
}

// TestPool: the buffers of a pool are distinct ranges of its region, which their elements name, and
// their numbers lead back to them.
func TestPool(t *testing.T) {
	p := newPool(t, 100, 3)
	require.Equal(t, []int{100, 3, 3 * 128}, []int{p.Size(), p.Count(), p.MR().Len()})
	var all []verbs.Buffer
	for i := range 3 {
		b, err := p.Get(t.Context())
		require.NoError(t, err)
		require.Len(t, b.Bytes(), 100)
		require.Equal(t, 100, cap(b.Bytes()))
		for j := range b.Bytes() {
			b.Bytes()[j] = byte(i + 1)
		}
		all = append(all, b)
	}
	_, ok := p.TryGet()
	require.False(t, ok, "all are out")
	for i, b := range all {
		require.Equal(t, byte(i+1), b.Bytes()[0])
		require.Equal(t, byte(i+1), b.Bytes()[99])
		sge, err := b.SGE(10, 90)
		require.NoError(t, err)
		require.Equal(t, verbs.SGE{Addr: p.MR().Addr() + uint64(b.Offset()) + 10, Length: 90, LKey: p.MR().LKey()}, sge)
		require.Equal(t, byte(i+1), p.MR().Bytes()[b.Offset()])
		_, err = p.MR().Word(b.Offset())
		require.NoError(t, err, "each begins with a word")
		same, err := p.Buffer(b.Number())
		require.NoError(t, err)
		require.Equal(t, b, same)
		for _, bad := range [][2]int{{0, 101}, {100, 1}, {-1, 1}, {0, -1}, {101, 0}} {
			_, err := b.SGE(bad[0], bad[1])
			require.ErrorIs(t, err, verbs.ErrBounds, "%v", bad)
		}
	}
	for _, b := range all {
		require.NoError(t, p.Put(b))
	}
	require.NoError(t, p.Close())
}

// TestPoolMisuse: a buffer is returned only once, to its own pool, by its holder.
func TestPoolMisuse(t *testing.T) {
	p, other := newPool(t, 8, 1), newPool(t, 8, 1)
	b, ok := p.TryGet()
	require.True(t, ok)
	require.ErrorIs(t, other.Put(b), verbs.ErrInvalid)
	require.ErrorIs(t, p.Put(verbs.Buffer{}), verbs.ErrInvalid)
	require.ErrorIs(t, p.Close(), verbs.ErrBusy)
	require.ErrorContains(t, p.Close(), "1 of 1 buffers are out")
	require.NoError(t, p.Put(b))
	require.ErrorIs(t, p.Put(b), verbs.ErrInvalid)
	again, ok := p.TryGet()
	require.True(t, ok)
	require.Equal(t, b.Number(), again.Number())
	require.ErrorIs(t, p.Put(b), verbs.ErrInvalid, "it is somebody else's now")
	require.NoError(t, p.Put(again))
	_, err := p.Buffer(0)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = p.Buffer(1)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	_, err = verbs.Buffer{}.SGE(0, 0)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.Nil(t, verbs.Buffer{}.Bytes())
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, ok = p.TryGet()
	require.False(t, ok)
	_, err = p.Get(t.Context())
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NoError(t, (*verbs.Pool)(nil).Close())

	pd := other.MR().PD()
	for _, c := range [][2]int{{0, 1}, {1, 0}, {-1, 1}} {
		_, err := pd.AllocPool(c[0], c[1], 0)
		require.ErrorIs(t, err, verbs.ErrInvalid)
	}
	for _, c := range [][2]int{{1<<63 - 1, 1}, {1 << 40, 1 << 40}, {64, 1 << 58}} {
		_, err := pd.AllocPool(c[0], c[1], 0)
		require.ErrorIs(t, err, verbs.ErrLimit)
	}
}

// TestPoolWaits: Get waits until a buffer is returned, its context is done or the pool is closed.
func TestPoolWaits(t *testing.T) {
	p := newPool(t, 8, 1)
	b, ok := p.TryGet()
	require.True(t, ok)
	got := make(chan error, 2)
	get := func(ctx context.Context) {
		b, err := p.Get(ctx)
		if err == nil {
			err = p.Put(b)
		}
		got <- err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go get(ctx)
	asleep.Until(t, 1, "verbs.(*Pool).Get", "usiw_test.TestPoolWaits")
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	go get(t.Context())
	go get(t.Context())
	asleep.Until(t, 2, "verbs.(*Pool).Get", "usiw_test.TestPoolWaits")
	require.NoError(t, p.Put(b))
	require.NoError(t, <-got)
	require.NoError(t, <-got)
	require.NoError(t, p.Close())
}

// TestPoolConcurrent: no two goroutines hold the same buffer, and printing the pool concurrently
// does no harm.
func TestPoolConcurrent(t *testing.T) {
	p := newPool(t, 8, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		wg.Go(func() {
			errs <- func() error {
				for range 200 {
					b, err := p.Get(ctx)
					if err != nil {
						return err
					}
					b.Bytes()[0] = byte(i) // the race detector reports another holder
					_ = fmt.Sprintf("%v %+v %d", p, b, p)
					if err := p.Put(b); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for range 8 {
		require.NoError(t, <-errs)
	}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.Contains(t, string(text), `"count":3`)
	require.NoError(t, p.Close())
}

func TestPoolAlloc(t *testing.T) {
	p := newPool(t, 8, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b, err := p.Get(t.Context())
		if err != nil {
			t.Error(err)
		}
		if _, err := b.SGE(0, 8); err != nil {
			t.Error(err)
		}
		if err := p.Put(b); err != nil {
			t.Error(err)
		}
	}))
	require.NoError(t, p.Close())
}
