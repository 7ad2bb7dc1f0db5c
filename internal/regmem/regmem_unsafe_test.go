// SPDX-License-Identifier: BSD-3-Clause

package regmem

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/race"
)

// words returns n aligned words, and the same memory as bytes.
func words(n int) ([]uint64, []byte) {
	w := make([]uint64, n)
	return w, unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*n)
}

// TestCopies: every length is copied at every alignment of both sides, and no adjacent byte
// changes.
func TestCopies(t *testing.T) {
	_, mem := words(8)
	_, from := words(8)
	for i := range from {
		from[i] = byte(i + 1)
	}
	for name, copies := range map[string]func(dst, src []byte){"Place": Place, "Fetch": Fetch} {
		for at := range 8 {
			for off := range 8 {
				for n := range 41 {
					for i := range mem {
						mem[i] = 0xee
					}
					copies(mem[at:at+n], from[off:off+n])
					want := bytes.Repeat([]byte{0xee}, len(mem))
					copy(want[at:], from[off:off+n])
					require.Equal(t, want, mem, "%s of %d bytes from %d to %d", name, n, off, at)
				}
			}
		}
	}
}

// TestLastWordIsWhole: whoever watches the last aligned word of the destination observes its old or
// its new value, never a mixture, and after the new value also the bytes before it. The race
// detector does not report a program that watches memory in this way. The destination begins in the
// middle of a word, where the built-in copy writes the middle twice.
func TestLastWordIsWhole(t *testing.T) {
	w, mem := words(2)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for before := uint64(0); !stop.Load(); {
			last, first := atomic.LoadUint64(&w[1]), atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[4])))
			if race.Enabled {
				first = ^uint32(0) // copied byte by byte: it may already be half of the next value
			}
			if last>>32 != last&0xffffffff || last < before || uint64(first) < last>>32 {
				t.Errorf("%#x behind %#x, after %#x", last, first, before)
				return
			}
			before = last
		}
	})
	var src [12]byte
	rounds := uint32(10_000_000) // copy is caught half-way once in several million rounds
	if race.Enabled {
		rounds = 200_000 // fewer: the race detector is slow, and must merely report nothing
	}
	for n := range rounds {
		for at := 0; at < len(src); at += 4 {
			binary.NativeEndian.PutUint32(src[at:], n)
		}
		Place(mem[4:], src[:])
		if n%1024 == 0 {
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	require.EqualValues(t, rounds-1, w[1]>>32)
}

func TestAligned(t *testing.T) {
	_, mem := words(2)
	for i := range 8 {
		require.Equal(t, i == 0, Aligned(mem[i:i+8]), i)
	}
}

// TestAtomicsCompute what RFC 7306 specifies, for all kinds of operands.
func TestAtomicsCompute(t *testing.T) {
	w, mem := words(1)
	rng := rand.New(rand.NewPCG(7306, 1))
	some := func() uint64 {
		return []uint64{0, 1, ^uint64(0), 1 << 63, rng.Uint64(), rng.Uint64() & rng.Uint64()}[rng.IntN(6)]
	}
	for range 5000 {
		orig, a, b, c, d := some(), some(), some(), some(), some()
		w[0] = orig
		require.Equal(t, orig, FetchAdd(mem, a, b))
		require.Equal(t, rdmap.FetchAdd(orig, a, b), w[0])
		w[0] = orig
		if rng.IntN(2) == 0 {
			a = orig
		}
		require.Equal(t, orig, CmpSwap(mem, a, b, c, d))
		require.Equal(t, rdmap.CmpSwap(orig, a, b, c, d), w[0])
	}
}

// TestAtomicsAreAtomic: with respect to each other and to sync/atomic.
func TestAtomicsAreAtomic(t *testing.T) {
	w, mem := words(3)
	const each = 5000
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range each {
				FetchAdd(mem[:8], 1, 0)
				atomic.AddUint64(&w[0], 1)
				FetchAdd(mem[8:16], 1<<32|1, 1<<31|1<<63) // two fields
				for {
					v := atomic.LoadUint64(&w[2])
					if CmpSwap(mem[16:24], v, ^uint64(0), v+1, ^uint64(0)) == v {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, []uint64{8 * each, 4*each<<32 | 4*each, 4 * each}, w)
	require.EqualValues(t, w[0], binary.NativeEndian.Uint64(mem))
}

func TestAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	_, mem := words(8)
	_, src := words(8)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		Place(mem, src)
		Fetch(src, mem)
		FetchAdd(mem, 1, 2)
		CmpSwap(mem, 1, 2, 3, 4)
		BeforeWrite()
		AfterRead()
	}))
}
