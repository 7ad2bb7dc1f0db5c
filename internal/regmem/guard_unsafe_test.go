// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package regmem

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/race"
)

// TestGuard: a fault in the memory is reported, and every other panic propagates.
func TestGuard(t *testing.T) {
	page := unix.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Mprotect(mem[page:2*page], unix.PROT_NONE))
	b := make([]byte, 2*page)
	for _, size := range []int{1, 4, 8, 64, page + 1, 2 * page} {
		there, gone := mem[:min(size, page)], mem[page-1:][:size+1]
		require.True(t, Guard(there, func() { Place(there, b[:len(there)]) }))
		require.True(t, Guard(there, func() { Fetch(b[:len(there)], there) }))
		if size == 2*page {
			gone = gone[:size]
		}
		require.False(t, Guard(gone, func() { Place(gone, b[:len(gone)]) }), size)
		require.False(t, Guard(gone, func() { Fetch(b[:len(gone)], gone) }), size)
	}
	word := mem[page:][:8]
	require.False(t, Guard(word, func() { FetchAdd(word, 1, 0) }))
	require.False(t, Guard(word, func() { FetchAdd(word, 1, 1) }))
	require.False(t, Guard(word, func() { CmpSwap(word, 1, 1, 1, 1) }))

	require.PanicsWithValue(t, "other", func() { Guard(mem, func() { panic("other") }) })
	var none *int
	require.Panics(t, func() { Guard(mem, func() { *none = 1 }) }, "outside")
	require.Panics(t, func() { Guard(mem[:page], func() { Fetch(b[:8], word) }) }, "outside")
	require.Panics(t, func() { Guard(nil, func() { *(*byte)(unsafe.Pointer(&mem[page])) = 1 }) }, "outside")
}

func TestGuardAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, mem := words(8)
	_, src := words(8)
	require.Zero(t, testing.AllocsPerRun(100, func() { Guard(mem, func() { Place(mem, src) }) }))
}

func BenchmarkGuard(b *testing.B) {
	_, mem := words(8)
	_, src := words(8)
	b.Run("without", func(b *testing.B) {
		for b.Loop() {
			Place(mem, src)
		}
	})
	b.Run("with", func(b *testing.B) {
		for b.Loop() {
			Guard(mem, func() { Place(mem, src) })
		}
	})
}
