// SPDX-License-Identifier: BSD-3-Clause

// Package calllock has the lock of a queue that is held during a call of C, which gives it back.
package calllock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/race"
)

// Lock is held during calls of C that are so short that the cost of a locked instruction matters.
// It costs one, where a mutex costs two: C releases it itself, by an ordinary store. That wakes no
// goroutine, so a waiting goroutine polls. The waiting goroutines form a line.
type Lock struct {
	held    atomic.Uint32 // 1, or 0: then it is free
	waiting atomic.Int32
	line    sync.Mutex // held by the first waiting goroutine
}

// TryLock takes the lock if it is free and no goroutine waits for it.
func (l *Lock) TryLock() bool { return l.waiting.Load() == 0 && l.held.CompareAndSwap(0, 1) }

// Lock takes the lock.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wait()
	}
}

// Unlock releases the lock if C does not.
func (l *Lock) Unlock() { l.held.Store(0) }

// AtEnd returns the variable in which C stores 0 at its end. It is nil if Unlock must be called
// instead, for the race detector, which does not see stores of C.
func (l *Lock) AtEnd() *atomic.Uint32 {
	if race.Enabled {
		return nil
	}
	return &l.held
}

// A waiting goroutine yields this number of times, and then sleeps: the holder needs less than a
// microsecond, unless the operating system has preempted it.
const (
	yields = 64
	sleep  = 20 * time.Microsecond
)

func (l *Lock) wait() {
	l.waiting.Add(1)
	l.line.Lock()
	for n := 0; !l.held.CompareAndSwap(0, 1); n++ {
		if n < yields {
			runtime.Gosched()
		} else {
			time.Sleep(sleep)
		}
	}
	l.line.Unlock()
	l.waiting.Add(-1)
}
