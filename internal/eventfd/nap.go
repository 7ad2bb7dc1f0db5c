// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package eventfd

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// napTime is how long a waiting goroutine blocks its own thread in ppoll(2) before it leaves the
// descriptor to Go's poller. An event within this time wakes only that thread. Through Go's poller
// it wakes a thread of the runtime, which may wake others to look for work before the goroutine
// runs. It also wakes the runtime's monitor, which then checks every 20 us for a while.
//
// Meanwhile Go has one processor fewer, until the monitor retakes it because there is work. So a
// goroutine naps only if the last event arrived within this time, and at most half of the
// processors nap.
var napTime = 10 * time.Millisecond // a variable for tests

// bells are eventfds, each of which wakes one napping thread. They are created on demand and stay
// open.
var bells struct {
	sync.Mutex
	made int
	free []int
}

// takeBell returns a bell, or false if the maximum number of threads are napping.
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
		return 0, false // use Go's poller instead
	}
	bells.made++
	return bell, true
}

func returnBell(bell int) {
	bells.Lock()
	defer bells.Unlock()
	bells.free = append(bells.free, bell)
}

// nap blocks this thread until fd is readable, until Wake or Close, or for napTime. It may return
// immediately.
func (e *File) nap(fd uintptr, now time.Time) {
	bell, ok := takeBell()
	if !ok {
		return
	}
	defer returnBell(bell)
	// The monitor treats a goroutine that has not yielded for 10 ms as computing, even if it only
	// sleeps. It would retake the processor at each nap, and check every 20 us whether it can.
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
	_, _ = unix.Ppoll(fds[:], &limit, nil) // the caller looks for events whatever the result

	e.mu.Lock()
	defer e.mu.Unlock()
	e.bell = noBell
	if e.woken {
		var count [8]byte
		_, _ = unix.Read(bell, count[:]) // reset it for its next use
	}
}

const noBell = -1

// ring wakes the napping goroutine and prevents the next nap. The caller holds mu.
func (e *File) ring() {
	if e.bell != noBell && !e.woken {
		_, _ = unix.Write(e.bell, []byte{0: 1, 7: 0}) // a reset eventfd has room
	}
	e.woken = true
}
