// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// begun is a setup in a test.
type begun struct {
	work context.Context
	done func()
}

// begins lets a request of an address enter and begins to answer it within d.
func begins(t *testing.T, s *setups, from netip.Addr, d time.Duration) (b begun, err error) {
	require.True(t, s.enter(from))
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	b.work, b.done, err = s.begin(ctx, from)
	if err != nil {
		s.leave(from)
	}
	return b, err
}

// TestSetups: the number of young setups of an address is limited; slow ones do not block others.
func TestSetups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetups()
		slow, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		var all []begun
		begin := func(from netip.Addr, within time.Duration) {
			t.Helper()
			b, err := begins(t, &s, from, within)
			require.NoError(t, err)
			all = append(all, b)
		}
		for range mostSetupsOf {
			begin(slow, time.Hour)
		}
		_, err := begins(t, &s, slow, setupYoung-1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		begin(other, time.Hour) // immediately: no time passes
		all[0].done()           // frees its place
		s.leave(slow)
		begin(slow, time.Hour)
		time.Sleep(1) // the others are no longer young
		synctest.Wait()
		for range mostSetupsOf - 1 {
			begin(slow, time.Hour)
		}
		_, err = begins(t, &s, slow, setupYoung-2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for _, b := range all[1:] {
			require.NoError(t, b.work.Err(), "it may go on")
			b.done()
		}
		s.leave(other)
		for range 2*mostSetupsOf - 1 {
			s.leave(slow)
		}
		require.Empty(t, s.of)
		require.Empty(t, s.places)
		require.Zero(t, s.oldest.Len())
		for range mostWaitingOf {
			require.True(t, s.enter(slow))
		}
		require.False(t, s.enter(slow))
		require.True(t, s.enter(other))
	})
}

// TestSetupsGivenUp: if there are too many in total, the oldest are abandoned, but not before they
// have had some time.
func TestSetupsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetups()
		var all []begun
		for i := range mostSetups {
			b, err := begins(t, &s, netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), time.Hour)
			require.NoError(t, err)
			all = append(all, b)
			go func() { // as a listener does
				<-b.work.Done()
				b.done()
			}()
			if i == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		other := netip.MustParseAddr("192.0.2.2")
		_, err := begins(t, &s, other, setupOld-2*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for n := 1; n <= 2; n++ { // the first one is 1 ms older
			began := time.Now()
			_, err = begins(t, &s, other, time.Hour)
			require.NoError(t, err)
			require.Equal(t, time.Millisecond, time.Since(began))
			require.Error(t, all[n-1].work.Err())
			require.NoError(t, all[n].work.Err())
		}
	})
}
