// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"fmt"
	"math/bits"
	"time"
)

// roundTrips collects the durations of pings in constant memory. It counts them in classes, each at
// most 1/64 as wide as its durations. Minimum and maximum are exact.
type roundTrips struct {
	n        uint64
	min, max time.Duration
	classes  [(63-classBits)<<(classBits-1) + 1<<classBits]uint64
}

// classBits is how many bits of a duration determine its class. Below 1<<classBits nanoseconds
// every duration has its own class; above, each power of two has half as many.
const classBits = 7

// class returns the class of a duration, and the duration in the middle of that class.
func class(d time.Duration) (i int, middle time.Duration) {
	shift := max(0, bits.Len64(uint64(d))-classBits)
	low := d >> shift << shift
	return shift<<(classBits-1) + int(d>>shift), low + (1<<shift-1)/2
}

// add records one ping.
func (r *roundTrips) add(d time.Duration) {
	d = max(0, d)
	if r.n == 0 || d < r.min {
		r.min = d
	}
	r.max = max(r.max, d)
	r.n++
	i, _ := class(d)
	r.classes[i]++
}

// percentile returns a duration within 1% of the shortest one that p percent of the pings did not
// exceed, or 0 without pings.
func (r *roundTrips) percentile(p int) time.Duration {
	rank := (r.n*uint64(p) + 99) / 100
	for i, seen := 0, uint64(0); i < len(r.classes); i++ {
		if seen += r.classes[i]; seen > 0 && seen >= rank {
			return min(max(r.min, middleOf(i)), r.max)
		}
	}
	return 0
}

// middleOf returns the duration in the middle of a class.
func middleOf(i int) time.Duration {
	shift := max(0, i>>(classBits-1)-1)
	_, middle := class(time.Duration(i-shift<<(classBits-1)) << shift)
	return middle
}

// roundTripNS is the JSON form of roundTrips, in nanoseconds.
type roundTripNS struct {
	Min int64 `json:"min"`
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

func (r *roundTrips) json() *roundTripNS {
	return &roundTripNS{Min: int64(r.min), P50: int64(r.percentile(50)), P99: int64(r.percentile(99)),
		Max: int64(r.max)}
}

func (r *roundTrips) String() string {
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return fmt.Sprintf("round trip of %d pings: min %.1f us, p50 %.1f us, p99 %.1f us, max %.1f us", r.n, us(r.min),
		us(r.percentile(50)), us(r.percentile(99)), us(r.max))
}
