// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDeadlineLateTimer: a timer call that arrives after the deadline was moved, removed or passed
// has no effect.
func TestDeadlineLateTimer(t *testing.T) {
	for name, c := range map[string]struct {
		to   time.Duration // from now; 0 = none
		past bool
	}{"moved": {time.Hour, false}, "taken away": {0, false}, "passed": {-time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			passed := 0
			var d deadline
			d.init(func() { passed++ })
			d.set(time.Now().Add(time.Minute))
			var at time.Time
			if c.to != 0 {
				at = time.Now().Add(c.to)
			}
			d.set(at)
			was := passed
			d.look()
			require.Equal(t, c.past, d.past.Load())
			require.Equal(t, was, passed)
			select {
			case <-d.channel():
				require.True(t, c.past)
			default:
				require.False(t, c.past)
			}
			d.stop()
		})
	}
}

// TestDeadlineClockSetBack: a timer that fires before the deadline, because the clock was set back,
// fires again.
func TestDeadlineClockSetBack(t *testing.T) {
	var d deadline
	d.init(func() {})
	d.set(time.Now().Add(time.Hour))
	at := time.Now().Add(20 * time.Millisecond)
	d.mu.Lock()
	d.at = at
	d.mu.Unlock()
	passes := d.channel()
	d.look()
	select {
	case <-passes:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the deadline does not pass")
	}
	require.False(t, time.Now().Before(at))
}
