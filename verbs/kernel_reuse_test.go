// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestSRQPlaces: however many receives go through an SRQ, taken, refused or flushed, the provider
// keeps places for as many as the SRQ has at a time, and each has its own.
func TestSRQPlaces(t *testing.T) {
	r := newRXERig(t)
	const most = 4
	srq, err := r.pd.CreateSRQ(verbs.SRQAttr{MaxWR: most})
	require.NoError(t, err)
	qp := r.newQP(verbs.QPConfig{SRQ: srq, Cap: verbs.QPCap{MaxSendWR: 1}})
	r.up(qp)
	next := uint64(1000)
	post := func(n int) (int, error) {
		wrs := make([]verbs.RecvWR, n)
		for i := range wrs {
			wrs[i].ID = next + uint64(i)
		}
		n, err := srq.PostRecv(wrs)
		next += uint64(n)
		return n, err
	}
	used := make(map[uint64]bool)
	var got []uint64
	for i := range 20 {
		n, err := post(most + i%3) // more than there is room for
		require.Equal(t, i%3 > 0, err != nil)
		require.Equal(t, most, n)
		for _, p := range fakeverbs.LastPosted() {
			used[p.WRID] = true
		}
		require.Equal(t, most, fakeverbs.CompleteRecv(qp.Num(), most, 0, 0))
		got = append(got, wcIDs(r.poll())...)
	}
	require.LessOrEqual(t, len(used), most+2)
	for i, id := range got {
		require.EqualValues(t, 1000+i, id)
	}
	require.Len(t, got, 20*most)
}

// TestClosedObjectsGo: nothing holds an object that has been closed, so a program that makes and
// closes them for ever does not grow.
func TestClosedObjectsGo(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			gone := make(map[string]func() bool)
			watch(gone, "CQ", func() *verbs.CQ {
				cq, err := r.ctx.CreateCQ(verbs.CQConfig{})
				require.NoError(t, err)
				require.NoError(t, cq.Close())
				return cq
			})
			watch(gone, "SRQ", func() *verbs.SRQ {
				srq := r.srq()
				require.NoError(t, srq.Close())
				return srq
			})
			watch(gone, "QP", func() *verbs.QP {
				qp := r.newQP(verbs.QPConfig{})
				r.up(qp)
				r.post(qp, writes(r.mr, 1)...)
				fakeverbs.CompleteSend(qp.Num(), 1, 0)
				require.Len(t, r.poll(), 1)
				require.NoError(t, qp.Close())
				return qp
			})
			for _, call := range []string{"ibv_create_cq", "ibv_create_srq", "ibv_create_qp"} {
				fakeverbs.Fail(call, 1, 5)
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				for _, is := range gone {
					if !is() {
						return false
					}
				}
				return true
			}, 30*time.Second, time.Millisecond)
		})
	}
}

// watch makes an object and notes how to ask whether it is gone.
func watch[T any](gone map[string]func() bool, kind string, make func() *T) {
	p := weak.Make(make())
	gone[kind] = func() bool { return p.Value() == nil }
}
