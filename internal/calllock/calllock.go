// SPDX-License-Identifier: BSD-3-Clause

// Package calllock provides a queue lock that is held across a C call and released by it.
package calllock

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/race"
)

// Lock is a lock for C calls so short that the cost of a locked instruction matters. It needs one
// such instruction where a mutex needs two: C releases the lock itself, with an ordinary store. The
// store wakes no goroutine, so a waiting goroutine polls. Only the first waiter polls; the others
// queue behind it.
type Lock struct {
	held    atomic.Uint32 // 1 while held, 0 while free
	waiting atomic.Int32
	line    sync.Mutex // held by the first waiting goroutine
}

// TryLock acquires the lock if it is free and no goroutine is waiting for it.
func (l *Lock) TryLock() bool { return l.waiting.Load() == 0 && l.held.CompareAndSwap(0, 1) }

// Lock acquires the lock.
func (l *Lock) Lock() {
	if !l.TryLock() {
		l.wait()
	}
}

// Unlock releases the lock when C does not.
func (l *Lock) Unlock() { l.held.Store(0) }

// AtEnd returns the variable to which C stores 0 when it is done. It returns nil if the caller must
// call Unlock instead, as under the race detector, which cannot see stores made by C.
func (l *Lock) AtEnd() *atomic.Uint32 {
	if race.Enabled {
		return nil
	}
	return &l.held
}

// A waiting goroutine yields this many times and then sleeps: the holder needs less than a
// microsecond unless the operating system has preempted it.
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
