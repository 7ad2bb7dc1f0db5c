// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package usiw

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// yielder lets all other goroutines of the process run once, including those that wait for the
// network.
//
// The runtime checks its network poller only when a processor has nothing else to run. While one
// goroutine, or several in turn, always have work, runtime.Gosched does not change that: goroutines
// that wait for the network then depend on the runtime's monitor, which checks the poller every
// 10 ms. The yielding goroutine therefore waits in the poller itself, for a descriptor that it has
// just made ready.
//
// That alone would starve timers. The thread that waits in the poller for the next timer may be the
// one that picks up the yielding goroutine. Its processor then keeps finding that goroutine in the
// poller and never looks for work on other processors, so the timers of an idle processor wait as
// long as the polling goes on. Starting a new goroutine makes the runtime look for work on all of
// them.
type yielder struct {
	seen atomic.Int64 // when yield last started a goroutine for this purpose (clock)

	mu   sync.Mutex
	free []*yieldFD
	made int
	over bool
}

// seekEvery is how often a yielding goroutine makes the runtime look for work on idle processors.
// The runtime's monitor preempts a computing goroutine as often.
const seekEvery = 10 * time.Millisecond

// maxYieldFDs limits the descriptors of a yielder. A goroutine that gets none calls
// runtime.Gosched.
const maxYieldFDs = 16

// yieldFD is one descriptor.
type yieldFD struct {
	file *os.File // an eventfd (eventfd(2))
	raw  syscall.RawConn
	left bool // the goroutine is waiting for the descriptor
	fn   func(fd uintptr) bool
}

func newYieldFD() *yieldFD {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	b := &yieldFD{file: os.NewFile(uintptr(fd), "usiw")}
	if b.raw, err = b.file.SyscallConn(); err != nil {
		b.file.Close()
		return nil
	}
	one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
	b.fn = func(fd uintptr) bool {
		if b.left = !b.left; b.left {
			_, err := unix.Write(int(fd), one) // the poller reports every write, even if nothing reads the counter
			return err != nil
		}
		return true
	}
	return b
}

// yield returns when all other goroutines have had a chance to run.
func (b *yielder) yield() {
	if now := clock(); now-b.seen.Load() > int64(seekEvery) {
		b.seen.Store(now)
		go nothing()
	}
	d := b.take()
	if d == nil {
		runtime.Gosched()
		return
	}
	d.left = false
	_ = d.raw.Read(d.fn)
	b.give(d)
}

func nothing() {}

// take returns an unused descriptor, or nil if there is none.
func (b *yielder) take() (d *yieldFD) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch n := len(b.free); {
	case b.over:
	case n > 0:
		d, b.free = b.free[n-1], b.free[:n-1]
	case b.made < maxYieldFDs:
		if d = newYieldFD(); d != nil {
			b.made++
		}
	}
	return d
}

func (b *yielder) give(d *yieldFD) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		d.file.Close()
		return
	}
	b.free = append(b.free, d)
}

func (b *yielder) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, d := range b.free {
		d.file.Close()
	}
	b.free = nil
}
