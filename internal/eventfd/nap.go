// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package eventfd

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// napTime is how long a goroutine that waits keeps its thread, which sleeps in ppoll(2), before it
// leaves the descriptor to Go's poller. An event that comes in this time wakes that thread and
// nothing else. With Go's poller it wakes a thread of the runtime, which may wake others to look
// for work before the goroutine runs, and the runtime's monitor, which then looks every 20 us for a
// while.
//
// Meanwhile Go has a processor less, until the monitor takes it away because there is work for it.
// So a goroutine naps only where the last event came in this time, and on half of the processors at
// most.
var napTime = 10 * time.Millisecond // tests change it

// bells are eventfds, each of which wakes one thread that naps. They are made when they are needed
// and stay open.
var bells struct {
	sync.Mutex
	made int
	free []int
}

// takeBell returns a bell, or false if as many threads nap as may.
func takeBell() (bell int, ok bool) {
	most := runtime.GOMAXPROCS(0) / 2
	bells.Lock()
	defer bells.Unlock()
	if bells.made-len(bells.free) >= most {
		return 0, false
	}
	if n := len(bells.free); n > 0 {
		bell = bells.free[n-1]
		bells.free = bells.free[:n-1]
		return bell, true
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return 0, false // Go's poller does without
	}
	bells.made++
	return bell, true
}

func returnBell(bell int) {
	bells.Lock()
	defer bells.Unlock()
	bells.free = append(bells.free, bell)
}

// nap sleeps on this thread until fd is readable, until Wake or Close, or for napTime; or not at
// all.
func (e *File) nap(fd uintptr, now time.Time) {
	bell, ok := takeBell()
	if !ok {
		return
	}
	defer returnBell(bell)
	// The monitor takes a goroutine that has not given way for 10 ms for one that computes, even if
	// it only sleeps. It would take the processor away at each nap, and look every 20 us whether it
	// can.
	if now.Sub(e.gave) > 4*time.Millisecond {
		e.gave = now
		runtime.Gosched()
	}

	e.mu.Lock()
	if e.woken {
		e.mu.Unlock()
		return
	}
	e.bell = bell
	e.mu.Unlock()

	limit := unix.NsecToTimespec(int64(napTime))
	fds := [...]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(bell), Events: unix.POLLIN}}
	_, _ = unix.Ppoll(fds[:], &limit, nil) // the caller looks for events, whatever it says

	e.mu.Lock()
	defer e.mu.Unlock()
	e.bell = noBell
	if e.woken {
		var count [8]byte
		_, _ = unix.Read(bell, count[:]) // it is quiet for the next one
	}
}

const noBell = -1

// ring wakes the goroutine that naps, and keeps the next one from it. The caller holds mu.
func (e *File) ring() {
	if e.bell != noBell && !e.woken {
		_, _ = unix.Write(e.bell, []byte{0: 1, 7: 0}) // an eventfd that is quiet has room
	}
	e.woken = true
}
