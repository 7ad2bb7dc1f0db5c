// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package siw

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// breather lets everybody else in the process run once, those who wait for the network included.
//
// The runtime looks at its poller when a processor has nothing else to run. A goroutine that polls without pause keeps its
// processor from that, even if it yields all the time: without another that is idle, who waits for the network waits until the
// runtime's monitor comes by, 10 ms later. So the goroutine itself waits in the poller, for a descriptor that it has just made
// ready.
type breather struct {
	once sync.Once
	mu   sync.Mutex // held by who waits
	file *os.File   // of an eventfd (eventfd(2)), nil if there is none
	raw  syscall.RawConn
	over bool
	left bool // the descriptor is being waited for
	fn   func(fd uintptr) bool
}

func (b *breather) open() {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return
	}
	b.file = os.NewFile(uintptr(fd), "siw")
	if b.raw, err = b.file.SyscallConn(); err != nil {
		b.file.Close()
		b.file = nil
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	b.fn = func(fd uintptr) bool {
		if b.left = !b.left; b.left {
			_, err := unix.Write(int(fd), one) // every write is announced, whether somebody reads or not
			return err != nil
		}
		return true
	}
}

// breathe returns when everybody else has had a chance to run.
func (b *breather) breathe() {
	if !b.mu.TryLock() { // another one does it
		runtime.Gosched()
		return
	}
	defer b.mu.Unlock()
	if b.over {
		return
	}
	if b.once.Do(b.open); b.file == nil {
		runtime.Gosched()
		return
	}
	b.left = false
	_ = b.raw.Read(b.fn)
}

func (b *breather) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.file != nil {
		b.file.Close()
	}
}
