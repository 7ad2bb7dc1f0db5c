// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestWordShared: a counter in one side's memory loses nothing when that side adds to it and
// compares and swaps, while its peer adds through requests.
func TestWordShared(t *testing.T) {
	a, p := connectEnds(t, usiw.Config{})
	word, err := p.mr.Word(64)
	require.NoError(t, err)
	word.Store(0)
	const each, step = 200, 1 << 40
	var local sync.WaitGroup
	local.Go(func() {
		for i := range each {
			if i%2 == 0 {
				word.Add(1)
				continue
			}
			for v := word.Load(); !word.CompareAndSwap(v, v+1); {
				v = word.Load()
			}
		}
	})
	for range each {
		sge, err := a.mr.SGE(0, 8)
		require.NoError(t, err)
		_, err = a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled,
			SGL: []verbs.SGE{sge}, RemoteAddr: p.mr.Addr() + 64, RKey: p.mr.RKey(), Add: step}})
		require.NoError(t, err)
		_, err = a.wait(a.scq, 1)
		require.NoError(t, err)
	}
	local.Wait()
	require.Equal(t, uint64(each*step+each), word.Load(), "the numbers are in host order")
	original, err := a.mr.Word(0)
	require.NoError(t, err)
	require.EqualValues(t, each-1, original.Load()/step, "the answer too")
}

// TestWordRefused: a word must be inside a region that is open, at an aligned address.
func TestWordRefused(t *testing.T) {
	pd, err := open(t, newNIC(t, usiw.Config{})).AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(20, verbs.AccessLocalWrite)
	require.NoError(t, err)
	for _, off := range []int{0, 8} {
		_, err := mr.Word(off)
		require.NoError(t, err)
	}
	for _, off := range []int{-8, 13, 16, 20, 1 << 62} {
		_, err := mr.Word(off)
		require.ErrorIs(t, err, verbs.ErrBounds, off)
	}
	_, err = mr.Word(4)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "offset 4")
	require.NoError(t, mr.Close())
	_, err = mr.Word(0)
	require.ErrorIs(t, err, verbs.ErrClosed)

	mem := make([]byte, 32)
	odd, err := pd.RegMR(mem[1:], verbs.AccessLocalWrite)
	require.NoError(t, err)
	_, err = odd.Word(0)
	require.ErrorIs(t, err, verbs.ErrInvalid, "the address counts, not the offset")
	word, err := odd.Word(7)
	require.NoError(t, err)
	word.Store(1<<64 - 1)
	require.Equal(t, []byte{0, 255, 255, 255, 255, 255, 255, 255, 255, 0}, mem[7:17])
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = odd.Word(7) }))
}
