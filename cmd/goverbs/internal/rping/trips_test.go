// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClasses: the middle of each duration's class is close to it, and the classes are contiguous.
func TestClasses(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < 1<<16; d++ {
		i, middle := class(d)
		require.True(t, i == last || i == last+1, "class %d of %d ns after %d", i, d, last)
		require.InDelta(t, float64(d), float64(middle), float64(d)/64/2+0.5)
		require.Equal(t, middle, middleOf(i))
		last = i
	}
	for range 10000 {
		d := time.Duration(rand.Uint64() >> (1 + rand.IntN(60)))
		i, middle := class(d)
		require.InEpsilon(t, float64(d)+1, float64(middle)+1, 1.0/64)
		require.Equal(t, middle, middleOf(i))
	}
	i, _ := class(math.MaxInt64)
	require.Len(t, new(roundTrips).classes, i+1)
}

// TestPercentiles compares with sorted durations.
func TestPercentiles(t *testing.T) {
	var none roundTrips
	require.Equal(t, &roundTripNS{}, none.json())
	for _, n := range []int{1, 2, 3, 10, 99, 100, 101, 5000} {
		var r roundTrips
		times := make([]time.Duration, n)
		for i := range times {
			times[i] = time.Duration(rand.ExpFloat64() * float64(50*time.Microsecond))
			r.add(times[i])
		}
		slices.Sort(times)
		require.Equal(t, [2]time.Duration{times[0], times[n-1]}, [2]time.Duration{r.min, r.max})
		for _, p := range []int{1, 50, 99, 100} {
			want := times[(n*p+99)/100-1]
			require.InDelta(t, float64(want), float64(r.percentile(p)), float64(want)/100+1, "p%d of %d", p, n)
		}
	}
	var r roundTrips
	for range 98 {
		r.add(1000)
	}
	r.add(5000)
	r.add(-7) // a clock that goes backwards
	require.Equal(t, "round trip of 100 pings: min 0.0 us, p50 1.0 us, p99 1.0 us, max 5.0 us", r.String())
}

func TestRoundTripsAlloc(t *testing.T) {
	var r roundTrips
	require.Zero(t, testing.AllocsPerRun(100, func() { r.add(time.Microsecond) }))
}
