// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEvictOldest: a reservation that does not fit fails if no stall is older, however much the
// others hold.
func TestEvictOldest(t *testing.T) {
	now := time.Now()
	s := stalls{limit: 100}
	var young, old stall
	require.Zero(t, s.reserve(60, now))
	s.enter(&young, 60, now)
	require.Zero(t, s.reserve(40, now))
	s.enter(&old, 40, now.Add(-time.Second))
	require.True(t, s.crowded())

	over, victim := s.try(1, now.Add(-2*time.Second))
	require.EqualValues(t, 101, over)
	require.Nil(t, victim)
	over, victim = s.try(1, now.Add(time.Second))
	require.EqualValues(t, 101, over)
	require.Same(t, &old, victim)
	require.True(t, s.leave(&old))
	require.False(t, s.leave(&old))
	require.EqualValues(t, 60, s.used.Load())
	over, victim = s.try(41, now.Add(time.Second))
	require.EqualValues(t, 101, over)
	require.Same(t, &young, victim)
	require.Zero(t, s.reserve(40, now))
	s.give(40)

	require.False(t, s.reserveTail(1), "half is left to others")
	require.True(t, s.reserveTail(0))
	require.True(t, s.leave(&young))
	require.False(t, s.crowded())
	require.True(t, s.reserveTail(50))
	require.False(t, s.reserveTail(1))
	s.give(50)
	require.Zero(t, s.used.Load())
	require.Empty(t, s.entered)
}
