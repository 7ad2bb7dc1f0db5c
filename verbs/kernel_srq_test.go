// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestSRQAttributes: sizes and limit of an SRQ reach the device and come back from it.
func TestSRQAttributes(t *testing.T) {
	r := newRig(t, "fake0")
	srq, err := r.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 7, MaxSGE: 3})
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 3, 0}, fakeverbs.Args("ibv_create_srq")[1:])
	attr, err := srq.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.SRQAttr{MaxWR: 7, MaxSGE: 3}, attr)
	require.NoError(t, srq.Modify(verbs.SRQAttr{SRQLimit: 2}, verbs.SRQAttrLimit))
	require.NoError(t, srq.Modify(verbs.SRQAttr{MaxWR: 9}, verbs.SRQAttrMaxWR))
	attr, err = srq.Query()
	require.NoError(t, err)
	require.Equal(t, verbs.SRQAttr{MaxWR: 9, MaxSGE: 3, SRQLimit: 2}, attr)
}

// TestSRQLists: lists of receives arrive one after the other, each with its elements; an empty one
// is nothing.
func TestSRQLists(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			srq, err := r.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 200, MaxSGE: 2})
			require.NoError(t, err)
			n, err := srq.PostRecv(nil)
			require.NoError(t, err)
			require.Zero(t, n)
			require.Zero(t, fakeverbs.Calls("ibv_post_srq_recv"))
			var want [][]fakeverbs.SGE
			for at := 0; at < 140; at += 70 { // more than go to the library at once
				wrs := make([]verbs.RecvWR, 70)
				for i := range wrs {
					wrs[i] = verbs.RecvWR{ID: uint64(at + i), SGL: []verbs.SGE{r.sge(at+i, 8), r.sge(at+i, 16)}[:1+i%2]}
					var sges []fakeverbs.SGE
					for _, s := range wrs[i].SGL {
						sges = append(sges, fakeverbs.SGE{Addr: s.Addr, Length: s.Length, LKey: s.LKey})
					}
					want = append(want, sges)
				}
				n, err := srq.PostRecv(wrs)
				require.NoError(t, err)
				require.Equal(t, 70, n)
			}
			posted := fakeverbs.Posted()
			require.Len(t, posted, len(want))
			for i := range want {
				require.Equal(t, want[i], posted[i].SGEs)
			}
			qp := r.newQP(verbs.QPConfig{SRQ: srq})
			r.up(qp)
			require.Equal(t, 140, fakeverbs.CompleteRecv(qp.Num(), 140, 0, 8))
			for i, wc := range r.poll() {
				require.Equal(t, verbs.WC{ID: uint64(i), Opcode: verbs.WCRecv, ByteLen: 8, QPNum: qp.Num()}, wc)
			}
		})
	}
}
