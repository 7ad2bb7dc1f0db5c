// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// Posting and dequeueing must not allocate. A device's goroutines do when they go to sleep, so
// posts and dequeues are measured separately from the waits between them, and it suffices if one of
// several rounds has no allocation.
func TestAllocNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("detectors allocate")
	}
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := pair(t, dev, addr, options{})
		segment, to, sink, there := a.segment(0, 64), b.remote(0, 64), a.segment(64, 8)[0], b.segment(0, 64)
		check := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		const batch, rounds = 8, 100
		post := func() {
			for range batch {
				check(b.ep.PostRecv(there, 1, 0))
				check(b.ep.PostRecvImmed(nil, 1, 0))
				check(a.ep.PostSend(segment, 1, dat.CompletionSuppress))
				check(a.ep.PostRDMAWrite(segment, 1, to, dat.CompletionSuppress))
				check(a.ep.PostWriteImmed(segment, 1, to, 1, dat.DTOImmedFlag, 0))
				check(a.ep.PostRDMARead(segment, 1, to, 0))
				check(a.ep.PostFetchAndAdd(1, sink, 1, to, 0))
			}
		}
		// AllocsPerRun calls its function twice.
		const sent, received = 2 * batch * 3, 2 * batch * 2
		take := func(e *dat.EVD, n int) float64 {
			_, more, err := e.Wait(t.Context(), patience, n)
			require.NoError(t, err)
			require.Equal(t, n-1, more)
			allocs := testing.AllocsPerRun(1, func() {
				for range n/2 - 1 {
					_, err := e.Dequeue()
					check(err)
				}
			})
			_, err = e.Dequeue()
			require.NoError(t, err)
			empty(t, e)
			return allocs
		}
		posting, dequeueing := 1e9, 1e9
		for round := 0; round < rounds && (posting > 0 || dequeueing > 0); round++ {
			posting = min(posting, testing.AllocsPerRun(1, post))
			dequeueing = min(dequeueing, take(a.requests, sent), take(b.recv, received))
		}
		require.Zero(t, posting)
		require.Zero(t, dequeueing)
	})
}
