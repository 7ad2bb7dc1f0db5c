// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/race"
)

// callLock is held during calls of C so short that a locked instruction counts. It costs one, where a mutex costs two: C
// gives it back itself, by an ordinary store. Nobody is told of that, so who waits looks again and again. Those who wait
// do so in line, and nobody passes them.
type callLock struct {
	held    atomic.Uint32 // 1, or 0: then it is free
	waiting atomic.Int32
	line    sync.Mutex // held by the first of those who wait
}

// tryLock takes the lock if it is free and nobody waits for it.
func (l *callLock) tryLock() bool { return l.waiting.Load() == 0 && l.held.CompareAndSwap(0, 1) }

// Lock takes the lock.
func (l *callLock) Lock() {
	if !l.tryLock() {
		l.wait()
	}
}

// Unlock gives the lock back if C does not.
func (l *callLock) Unlock() { l.held.Store(0) }

// atEnd returns what C stores 0 to when it is done, nil if Unlock must follow: the race detector does not see what C does.
func (l *callLock) atEnd() *atomic.Uint32 {
	if race.Enabled {
		return nil
	}
	return &l.held
}

// Who waits lets others run so many times, and sleeps then: the holder needs less than a microsecond, unless the operating
// system has stopped it.
const (
	callLockYields = 64
	callLockSleep  = 20 * time.Microsecond
)

func (l *callLock) wait() {
	l.waiting.Add(1)
	l.line.Lock()
	for n := 0; !l.held.CompareAndSwap(0, 1); n++ {
		if n < callLockYields {
			runtime.Gosched()
		} else {
			time.Sleep(callLockSleep)
		}
	}
	l.line.Unlock()
	l.waiting.Add(-1)
}
