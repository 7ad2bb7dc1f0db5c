// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// ended takes what has ended out of t and returns what a poller sees.
func ended(t *ledger) []WC {
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

func TestLedgerKeepsOrder(t *testing.T) {
	var tr ledger
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
	require.Equal(t, 2, tr.slots())
}

func TestLedgerUnreported(t *testing.T) {
	var tr ledger
	tr.add(0, slotLent, false, false)
	tr.add(1, slotLent, false, true) // reported by the device, hidden from the poller
	tr.add(2, slotLent, true, true)
	require.True(t, tr.complete(2, &WC{}))
	require.Empty(t, ended(&tr))
	require.Equal(t, 2, tr.slots(), "0 ended with 2, 1 is reported by itself")
	require.True(t, tr.complete(1, &WC{}))
	require.Equal(t, []uint64{2}, ids(ended(&tr)))
	require.Zero(t, tr.lent)
}

func TestLedgerErrorFlushesTheRest(t *testing.T) {
	var tr ledger
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

func TestLedgerFlush(t *testing.T) {
	var tr ledger
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

func TestLedgerPoison(t *testing.T) {
	var tr ledger
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

// TestLedgerSplitReads: the device has two requests where the program has one.
func TestLedgerSplitReads(t *testing.T) {
	post := func(tr *ledger) {
		tr.push(slot{wc: WC{ID: 70}, state: slotLent, reported: true, read: true, first: true})
		tr.push(slot{wc: WC{ID: 70}, state: slotLent, reported: true, read: true, visible: true})
		tr.push(slot{wc: WC{ID: 71}, state: slotLent, reported: true, visible: true})
		require.Equal(t, []int{3, 2, 2, 3}, counts(tr))
	}
	for name, order := range map[string][]uint64{"second part last": {0, 2, 1}, "backwards": {2, 1, 0}} {
		var tr ledger
		post(&tr)
		for _, seq := range order {
			require.Empty(t, ended(&tr), name)
			tr.complete(seq, &WC{Opcode: WCRDMARead, ByteLen: uint32(5 + seq)})
		}
		wcs := ended(&tr)
		require.Equal(t, []uint64{70, 71}, ids(wcs), name)
		require.EqualValues(t, 11, wcs[0].ByteLen, "that of both")
		require.EqualValues(t, 7, wcs[1].ByteLen)
		require.Equal(t, []int{0, 0, 0, 0}, counts(&tr), name)
	}

	t.Run("the first fails", func(t *testing.T) {
		var tr ledger
		post(&tr)
		tr.complete(0, &WC{Status: WCRemAccessErr, VendorErr: 4, QPNum: 9})
		require.Equal(t, []WC{{ID: 70, Status: WCRemAccessErr, VendorErr: 4, QPNum: 9}}, ended(&tr),
			"the request has, at once")
		require.Equal(t, []int{1, 0, 1, 1}, counts(&tr))
		require.False(t, tr.complete(1, &WC{Status: WCWRFlushErr}))
		tr.complete(2, &WC{Status: WCWRFlushErr})
		require.Equal(t, []uint64{71}, ids(ended(&tr)))
	})
	t.Run("the second fails", func(t *testing.T) {
		var tr ledger
		post(&tr)
		tr.complete(0, &WC{ByteLen: 5})
		require.Empty(t, ended(&tr))
		tr.complete(1, &WC{Status: WCRemAccessErr})
		require.Equal(t, []WC{{ID: 70, Status: WCRemAccessErr}}, ended(&tr))
	})
	t.Run("flushed", func(t *testing.T) {
		var tr ledger
		post(&tr)
		tr.flush(9)
		wcs := ended(&tr)
		require.Equal(t, []uint64{70, 71}, ids(wcs))
		require.Equal(t, WCWRFlushErr, wcs[0].Status)
		require.Equal(t, []int{0, 0, 0, 0}, counts(&tr))
	})
	t.Run("withdrawn", func(t *testing.T) {
		var tr ledger
		post(&tr)
		tr.withdraw(3)
		require.Equal(t, []int{0, 0, 0, 0}, counts(&tr))
	})
}

// counts are what a ledger counts: of the device's slots all and the Reads, the requests under way,
// and the slots.
func counts(t *ledger) []int { return []int{t.lent, t.reads, t.requests(), t.slots()} }

// TestLedgerSplitReadsRandom: whatever becomes of which part in which order, a request fails if one
// of them does, has the length of both, and comes once, in its turn; and the counts come to
// nothing.
func TestLedgerSplitReadsRandom(t *testing.T) {
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		var hidden atomic.Int64
		tr := ledger{hidden: &hidden}
		type request struct {
			visible bool
			want    uint32 // ByteLen
			undone  int
			failed  bool
		}
		var requests []*request
		var lent []uint64
		owner := make(map[uint64]*request)
		var got []WC
		for range 40 {
			if rnd.IntN(3) == 0 {
				r := &request{visible: rnd.IntN(2) == 0}
				id := uint64(len(requests))
				n := 1 + rnd.IntN(2)
				for i := range n {
					first := i < n-1
					seq := tr.push(slot{wc: WC{ID: id}, read: rnd.IntN(2) == 0, first: first, visible: r.visible &&
						!first, reported: true})
					if rnd.IntN(2) == 0 { // sooner or later the device gets it
						tr.lend(seq)
					}
					lent, owner[seq] = append(lent, seq), r
					r.undone++
				}
				if rnd.IntN(8) == 0 {
					tr.withdraw(n)
					lent = lent[:len(lent)-n]
					continue
				}
				requests = append(requests, r)
				continue
			}
			if len(lent) == 0 {
				continue
			}
			i := rnd.IntN(len(lent))
			seq := lent[i]
			lent = append(lent[:i], lent[i+1:]...)
			r := owner[seq]
			wc := WC{ByteLen: 1 + rnd.Uint32N(9)}
			r.want += wc.ByteLen
			r.undone--
			if rnd.IntN(12) == 0 {
				wc.Status, r.failed = WCRemAccessErr, true
			}
			tr.complete(seq, &wc)
			got = append(got, ended(&tr)...)
		}
		tr.flush(1)
		got = append(got, ended(&tr)...)
		failed, k := false, 0
		for id, r := range requests {
			failed = failed || r.failed || r.undone > 0
			if !failed && !r.visible {
				continue
			}
			require.Less(t, k, len(got), "seed %d", seed)
			require.EqualValues(t, id, got[k].ID, "seed %d", seed)
			require.Equal(t, failed, got[k].Status != WCSuccess, "seed %d", seed)
			if !failed {
				require.Equal(t, r.want, got[k].ByteLen, "seed %d", seed)
			}
			k++
		}
		require.Len(t, got, k, "seed %d", seed)
		require.Equal(t, []int{0, 0, 0, 0}, counts(&tr), "seed %d", seed)
		require.Zero(t, hidden.Load(), "seed %d", seed)
	}
}

// TestLedgerRandom: in whatever order the device reports, and however often, each request ends once
// and in order.
func TestLedgerRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var tr ledger
		var want, got []uint64
		var lent []uint64
		for id := uint64(0); id < 300; {
			for range rnd.IntN(20) {
				lent = append(lent, tr.add(id, slotLent, true, true))
				want = append(want, id)
				id++
			}
			if n := rnd.IntN(4); n > 0 && tr.slots() > 0 {
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
		require.Zero(t, tr.slots())
	}
}
