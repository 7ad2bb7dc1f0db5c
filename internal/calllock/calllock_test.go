// SPDX-License-Identifier: BSD-3-Clause

package calllock

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLock has many goroutines take the lock.
func TestLock(t *testing.T) {
	const goroutines, rounds = 8, 2000
	var (
		l      Lock
		counts [2]int
		wg     sync.WaitGroup
	)
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				l.Lock()
				counts[0]++
				counts[1]++
				l.Unlock()
			}
		})
	}
	wg.Wait()
	require.Equal(t, [2]int{goroutines * rounds, goroutines * rounds}, counts)
	require.True(t, l.TryLock())
	require.False(t, l.TryLock(), "it is taken")
	l.Unlock()
}

// TestLockLine waits for the lock while another goroutine takes it again and again, and keeps
// it from those that come later.
func TestLockLine(t *testing.T) {
	var l Lock
	var n int
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.Lock()
				n++
				l.Unlock()
			}
		}
	})
	for range 100 {
		l.Lock()
		n++
		l.Unlock()
	}
	close(stop)
	wg.Wait()
	require.GreaterOrEqual(t, n, 100)

	l.Lock()
	got := make(chan struct{})
	go func() {
		l.Lock()
		close(got)
	}()
	require.Eventually(t, func() bool { return l.waiting.Load() == 1 }, 30*time.Second, time.Millisecond)
	require.False(t, l.TryLock())
	if at := l.AtEnd(); at != nil {
		at.Store(0) // as C does
	} else {
		l.Unlock()
	}
	<-got
	require.False(t, l.TryLock(), "the one who waited has it")
}
