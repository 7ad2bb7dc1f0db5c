// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// TestRelaxedIgnored: SendRelaxed affects neither the bytes on the wire nor the completion of a
// request nor its time.
func TestRelaxedIgnored(t *testing.T) {
	type trace struct {
		sent, received []verbs.WC
		octets         int64
	}
	run := func(flags verbs.SendFlags) (tr trace) {
		p := usiwtest.Connect(t, usiwtest.PairConfig{Before: func(p *usiwtest.Pair) error {
			_, err := p.B.QP.PostRecv(
				[]verbs.RecvWR{{ID: 9, SGL: []verbs.SGE{{Addr: p.B.MR.Addr(), Length: 100, LKey: p.B.MR.LKey()}}}})
			return err
		}})
		sgl := []verbs.SGE{{Addr: p.A.MR.Addr(), Length: 8, LKey: p.A.MR.LKey()}}
		var wrs []verbs.SendWR
		for i, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd,
			verbs.WRRDMAWrite, verbs.WRSend} {
			wr := verbs.SendWR{ID: uint64(i), Opcode: op, Flags: flags, SGL: sgl, RemoteAddr: p.B.MR.Addr(),
				RKey: p.B.MR.RKey()}
			if i != 3 {
				wr.Flags |= verbs.SendSignaled
			}
			wrs = append(wrs, wr)
		}
		before := p.Link.ToListener.Written()
		n, err := p.A.QP.PostSend(wrs)
		require.NoError(t, err)
		require.Equal(t, len(wrs), n)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		wait := func(cq *verbs.CQ, n int) (all []verbs.WC) {
			for len(all) < n {
				wcs := make([]verbs.WC, 8)
				k, err := cq.Wait(ctx, wcs)
				require.NoError(t, err)
				for _, wc := range wcs[:k] {
					wc.QPNum = 0
					all = append(all, wc)
				}
			}
			return all
		}
		tr.sent, tr.received = wait(p.A.SendCQ, 4), wait(p.B.RecvCQ, 1)
		tr.octets = p.Link.ToListener.Written() - before
		return tr
	}
	plain, relaxed := run(0), run(verbs.SendRelaxed)
	require.Len(t, plain.sent, 4)
	require.Positive(t, plain.octets)
	require.Equal(t, plain, relaxed)
}
