// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package mapmem

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Bounds on the address space that stays reserved for closed regions, so that an access through a
// stale pointer faults.
const (
	quarantineBytes  = 1 << 30
	quarantineRanges = 1024
)

var quarantine struct {
	sync.Mutex
	ranges [][]byte // oldest first
	bytes  int
}

// Map returns at least n bytes of zeroed, page-aligned memory outside the Go heap. It uses huge
// pages if huge is set and the system can provide them.
func Map(n int, huge bool) ([]byte, error) {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON
	if huge {
		if mem, err := mapHuge(n, prot, flags); err == nil {
			return mem, nil
		}
	}
	page := os.Getpagesize()
	return unix.Mmap(-1, 0, (n+page-1)/page*page, prot, flags)
}

// Unmap frees the pages immediately, but keeps their addresses reserved and inaccessible for a
// while.
func Unmap(mem []byte) {
	// Dropping the pages in one step would need a fresh inaccessible mapping; MADV_DONTNEED and
	// PROT_NONE have the same effect.
	_ = unix.Madvise(mem, unix.MADV_DONTNEED)
	if err := unix.Mprotect(mem, unix.PROT_NONE); err != nil {
		_ = unix.Munmap(mem)
		return
	}
	quarantine.Lock()
	defer quarantine.Unlock()
	quarantine.ranges = append(quarantine.ranges, mem)
	quarantine.bytes += len(mem)
	for quarantine.bytes > quarantineBytes || len(quarantine.ranges) > quarantineRanges {
		oldest := quarantine.ranges[0]
		quarantine.ranges[0] = nil
		quarantine.ranges = quarantine.ranges[1:]
		quarantine.bytes -= len(oldest)
		_ = unix.Munmap(oldest)
	}
}
