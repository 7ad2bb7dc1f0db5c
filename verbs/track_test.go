// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// ended takes what has ended out of t and returns what a poller sees.
func ended(t *track) []WC {
	var wcs []WC
	for {
		wc, visible, ok := t.next()
		if !ok {
			return wcs
		}
		if visible {
			wcs = append(wcs, *wc)
		}
	}
}

func ids(wcs []WC) []uint64 {
	out := []uint64{}
	for _, wc := range wcs {
		out = append(out, wc.ID)
	}
	return out
}

func TestTrackKeepsOrder(t *testing.T) {
	var tr track
	for i := range 4 {
		require.EqualValues(t, i, tr.add(uint64(100+i), slotLent, true, true))
	}
	require.True(t, tr.complete(1, &WC{ID: 1, Opcode: WCRDMAWrite}))
	require.Empty(t, ended(&tr), "the Write waits for the Read before it")
	require.True(t, tr.complete(0, &WC{Opcode: WCRDMARead}))
	wcs := ended(&tr)
	require.Equal(t, []uint64{100, 101}, ids(wcs))
	require.Equal(t, WCRDMARead, wcs[0].Opcode)
	require.False(t, tr.complete(1, &WC{}), "it has ended")
	require.False(t, tr.complete(9, &WC{}), "it was never posted")
	require.Equal(t, 2, tr.lent)
	require.Equal(t, 2, tr.open())
}

func TestTrackUnreported(t *testing.T) {
	var tr track
	tr.add(0, slotLent, false, false)
	tr.add(1, slotLent, false, true) // reported by the device, hidden from the poller
	tr.add(2, slotLent, true, true)
	require.True(t, tr.complete(2, &WC{}))
	require.Empty(t, ended(&tr))
	require.Equal(t, 2, tr.open(), "0 ended with 2, 1 is reported by itself")
	require.True(t, tr.complete(1, &WC{}))
	require.Equal(t, []uint64{2}, ids(ended(&tr)))
	require.Zero(t, tr.lent)
}

func TestTrackErrorFlushesTheRest(t *testing.T) {
	var tr track
	for i := range 4 {
		tr.add(uint64(i), slotLent, i == 3, true)
	}
	tr.complete(0, &WC{})
	tr.complete(1, &WC{Status: WCRemAccessErr, ByteLen: 7, QPNum: 5})
	tr.complete(2, &WC{})
	tr.complete(3, &WC{})
	wcs := ended(&tr)
	require.Equal(t, []uint64{1, 2, 3}, ids(wcs), "an error makes a completion without a signal")
	require.Equal(t, WC{ID: 1, Status: WCRemAccessErr, QPNum: 5}, wcs[0])
	require.Equal(t, WCWRFlushErr, wcs[1].Status, "no success after an error")
	require.Equal(t, WCWRFlushErr, wcs[2].Status)
}

func TestTrackFlush(t *testing.T) {
	var tr track
	tr.add(0, slotLent, true, true)
	tr.add(1, slotHeld, true, true)
	tr.complete(0, &WC{})
	tr.add(2, slotHeld, false, true)
	tr.flush(9)
	wcs := ended(&tr)
	require.Equal(t, []uint64{0, 1, 2}, ids(wcs))
	require.Equal(t, WCSuccess, wcs[0].Status)
	require.Equal(t, WC{ID: 1, Status: WCWRFlushErr, QPNum: 9}, wcs[1])
	require.False(t, tr.complete(1, &WC{}), "the device's own flush comes late")
	require.Zero(t, tr.lent)
}

func TestTrackPoison(t *testing.T) {
	var tr track
	tr.add(0, slotLent, true, true)
	seq := tr.add(1, slotHeld, true, true)
	tr.fail(seq, WCLocQPOpErr, 3)
	require.True(t, tr.poisoned)
	require.Empty(t, ended(&tr), "what is before it ends first")
	tr.complete(0, &WC{})
	wcs := ended(&tr)
	require.Equal(t, []uint64{0, 1}, ids(wcs))
	require.Equal(t, WCLocQPOpErr, wcs[1].Status)
	tr.drop()
	require.False(t, tr.poisoned)
	require.False(t, tr.failed)
}

// TestTrackHalves: the device has two requests where the program has one.
func TestTrackHalves(t *testing.T) {
	post := func(tr *track) {
		require.EqualValues(t, 0, tr.addHalf(70))
		tr.add(70, slotLent, true, true)
		tr.add(71, slotLent, true, true)
		require.Equal(t, []int{3, 2}, []int{tr.lent, tr.requests()})
	}
	for name, order := range map[string][]uint64{"in order": {0, 1, 2}, "backwards": {2, 1, 0}} {
		var tr track
		post(&tr)
		for _, seq := range order[:2] {
			tr.complete(seq, &WC{Opcode: WCRDMARead, ByteLen: uint32(5 + seq)})
		}
		require.Equal(t, 1, tr.lent, name)
		tr.complete(order[2], &WC{Opcode: WCRDMARead, ByteLen: uint32(5 + order[2])})
		wcs := ended(&tr)
		require.Equal(t, []uint64{70, 71}, ids(wcs), name)
		require.EqualValues(t, 11, wcs[0].ByteLen, "that of both")
		require.EqualValues(t, 7, wcs[1].ByteLen)
		require.Equal(t, []int{0, 0, 0}, []int{tr.lent, tr.requests(), tr.open()}, name)
	}

	t.Run("the first fails", func(t *testing.T) {
		var tr track
		post(&tr)
		tr.complete(0, &WC{Status: WCRemAccessErr, VendorErr: 4, QPNum: 9})
		require.Equal(t, []WC{{ID: 70, Status: WCRemAccessErr, VendorErr: 4, QPNum: 9}}, ended(&tr), "the request has, at once")
		require.Equal(t, []int{1, 1}, []int{tr.lent, tr.requests()})
		require.False(t, tr.complete(1, &WC{Status: WCWRFlushErr}))
		tr.complete(2, &WC{Status: WCWRFlushErr})
		require.Equal(t, []uint64{71}, ids(ended(&tr)))
		require.Zero(t, tr.requests())
	})
	t.Run("the second fails", func(t *testing.T) {
		var tr track
		post(&tr)
		tr.complete(0, &WC{ByteLen: 5})
		require.Empty(t, ended(&tr))
		tr.complete(1, &WC{Status: WCRemAccessErr})
		wcs := ended(&tr)
		require.Equal(t, []WC{{ID: 70, Status: WCRemAccessErr}}, wcs)
	})
	t.Run("flushed", func(t *testing.T) {
		var tr track
		post(&tr)
		tr.flush(9)
		wcs := ended(&tr)
		require.Equal(t, []uint64{70, 71}, ids(wcs))
		require.Equal(t, WCWRFlushErr, wcs[0].Status)
		require.Zero(t, tr.requests())
	})
	t.Run("withdrawn", func(t *testing.T) {
		var tr track
		post(&tr)
		tr.withdraw(3)
		require.Equal(t, []int{0, 0, 0}, []int{tr.lent, tr.requests(), tr.open()})
	})
}

// TestTrackRandom: in whatever order the device reports, and however often, each request ends once and in order.
func TestTrackRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var tr track
		var want, got []uint64
		var lent []uint64
		for id := uint64(0); id < 300; {
			for range rnd.IntN(20) {
				lent = append(lent, tr.add(id, slotLent, true, true))
				want = append(want, id)
				id++
			}
			if n := rnd.IntN(4); n > 0 && tr.open() > 0 {
				tr.withdraw(1)
				lent = lent[:len(lent)-1]
				want = want[:len(want)-1]
				id--
			}
			for i := range lent {
				j := rnd.IntN(i + 1)
				lent[i], lent[j] = lent[j], lent[i]
			}
			for _, seq := range lent[:rnd.IntN(len(lent)+1)] {
				tr.complete(seq, &WC{})
			}
			got = append(got, ids(ended(&tr))...)
			pending := lent[:0]
			for _, seq := range lent {
				if seq >= tr.head && tr.at(seq).state != slotDone {
					pending = append(pending, seq)
				}
			}
			// One that was completed and waits for its predecessors cannot be withdrawn.
			lent = pending
			if len(lent) == 0 || lent[len(lent)-1] != tr.tail-1 {
				tr.flush(0)
				got = append(got, ids(ended(&tr))...)
				tr.failed = false
				lent = lent[:0]
			}
		}
		tr.flush(0)
		got = append(got, ids(ended(&tr))...)
		require.Equal(t, want, got)
		require.Zero(t, tr.lent)
		require.Zero(t, tr.open())
	}
}
