// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// rxe tells a failed operation where InfiniBand's hardware tells more.

// TestRXEReceiveStatus: by the memory that a receive names when it fails, it was too short, or the
// memory wrong.
func TestRXEReceiveStatus(t *testing.T) {
	const said = verbs.WCLocQPOpErr
	for _, shared := range []bool{false, true} {
		for name, c := range map[string]struct {
			status verbs.WCStatus
			sgl    func(r *rig) []verbs.SGE
			fault  verbs.AccessFault
		}{
			"short": {verbs.WCLocLenErr,
				func(r *rig) []verbs.SGE { return []verbs.SGE{r.sge(0, 8), r.sge(4088, 8)} }, 0},
			"nothing":  {verbs.WCLocLenErr, func(*rig) []verbs.SGE { return nil }, 0},
			"no bytes": {verbs.WCLocLenErr, func(*rig) []verbs.SGE { return []verbs.SGE{{Addr: 1, LKey: 2}} }, 0},
			"key": {verbs.WCLocProtErr, func(r *rig) []verbs.SGE {
				s := r.sge(0, 8)
				s.LKey ^= 1
				return []verbs.SGE{r.sge(0, 8), s}
			}, verbs.AccessBadKey},
			"end": {verbs.WCLocProtErr, func(r *rig) []verbs.SGE {
				s := r.sge(4088, 8)
				s.Addr++
				return []verbs.SGE{s}
			}, verbs.AccessBounds},
			"before": {verbs.WCLocProtErr, func(r *rig) []verbs.SGE {
				s := r.sge(0, 8)
				s.Addr--
				return []verbs.SGE{s}
			}, verbs.AccessBounds},
			"right": {verbs.WCLocProtErr, func(r *rig) []verbs.SGE {
				mr, err := r.pd.AllocMR(8, verbs.AccessRemoteRead)
				require.NoError(r, err)
				return []verbs.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}}
			}, verbs.AccessMissingRight},
			"domain": {verbs.WCLocProtErr, func(r *rig) []verbs.SGE {
				pd, err := r.ctx.AllocPD()
				require.NoError(r, err)
				mr, err := pd.AllocMR(8, allRights)
				require.NoError(r, err)
				return []verbs.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}}
			}, verbs.AccessForeign},
		} {
			t.Run(name, func(t *testing.T) {
				r := newRXERig(t)
				qp, post := r.qp, r.qp.PostRecv
				if shared {
					srq, err := r.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 4, MaxSGE: 2})
					require.NoError(t, err)
					qp, post = r.newQP(verbs.QPConfig{SRQ: srq}), srq.PostRecv
				}
				r.up(qp)
				for round := range uint64(40) { // more than the queue has places
					_, err := post([]verbs.RecvWR{{ID: round, SGL: []verbs.SGE{r.sge(0, 8)}}})
					require.NoError(t, err)
					require.Equal(t, 1, fakeverbs.CompleteRecv(qp.Num(), 1, 0, 8))
					require.Equal(t, []uint64{round}, wcIDs(r.poll()))
				}
				_, err := post([]verbs.RecvWR{{ID: 9, SGL: c.sgl(r)}})
				require.NoError(t, err)
				require.Equal(t, 1, fakeverbs.CompleteRecv(qp.Num(), 1, uint32(said), 0))
				wcs := r.poll()
				require.Equal(t, []uint64{9}, wcIDs(wcs))
				require.Equal(t, c.status.String(), wcs[0].Status.String())
				cause := qp.Cause(&wcs[0])
				require.ErrorContains(t, cause, "RECV 9 of QP")
				var access *verbs.AccessError
				require.Equal(t, c.status == verbs.WCLocProtErr, errors.As(cause, &access), "%v", cause)
				if access != nil {
					require.Equal(t, c.fault, access.Fault)
					require.Equal(t, len(c.sgl(r))-1, access.Element)
				}
			})
		}
	}
}

// TestRXEReceiveFreed: memory that is gone when the message comes is wrong. It is not gone if the
// device keeps it.
func TestRXEReceiveFreed(t *testing.T) {
	for _, kept := range []bool{false, true} {
		r := newRXERig(t)
		r.up(r.qp)
		mr, err := r.pd.AllocMR(8, allRights)
		require.NoError(t, err)
		_, err = r.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()}}}})
		require.NoError(t, err)
		want := verbs.WCLocProtErr
		if kept {
			want = verbs.WCLocLenErr
			fakeverbs.Fail("ibv_dereg_mr", 1, syscall.EINVAL)
			require.ErrorIs(t, mr.Close(), verbs.ErrBusy)
		} else {
			require.NoError(t, mr.Close())
		}
		require.Equal(t, 1, fakeverbs.CompleteRecv(r.qp.Num(), 1, uint32(verbs.WCLocQPOpErr), 0))
		require.Equal(t, want, r.poll()[0].Status)
	}
}

// TestRXESendStatus: what a send has failed of, by its opcode and memory.
func TestRXESendStatus(t *testing.T) {
	good := func(r *rig) verbs.SGE { return r.sge(0, 8) }
	bad := func(r *rig) verbs.SGE {
		s := r.sge(0, 8)
		s.LKey ^= 1
		return s
	}
	for _, c := range []struct {
		op         verbs.WROpcode
		flags      verbs.SendFlags
		sge        func(r *rig) verbs.SGE
		said, want verbs.WCStatus
	}{
		{verbs.WRSend, 0, good, verbs.WCRemOpErr, verbs.WCRemInvReqErr},
		{verbs.WRSendWithImm, 0, good, verbs.WCRemOpErr, verbs.WCRemInvReqErr},
		{verbs.WRSendWithInv, 0, good, verbs.WCRemOpErr, verbs.WCRemInvReqErr},
		{verbs.WRRDMAWriteWithImm, 0, good, verbs.WCRemOpErr, verbs.WCRemOpErr},
		{verbs.WRRDMARead, 0, good, verbs.WCRemOpErr, verbs.WCRemOpErr},
		{verbs.WRSend, 0, good, verbs.WCRemAccessErr, verbs.WCRemAccessErr},
		{verbs.WRSend, 0, good, verbs.WCLocQPOpErr, verbs.WCLocQPOpErr},
		{verbs.WRSend, 0, bad, verbs.WCLocQPOpErr, verbs.WCLocProtErr},
		{verbs.WRRDMAWrite, 0, bad, verbs.WCLocQPOpErr, verbs.WCLocProtErr},
		{verbs.WRSend, verbs.SendInline, bad, verbs.WCLocQPOpErr, verbs.WCLocQPOpErr},
		{verbs.WRSend, 0, bad, verbs.WCWRFlushErr, verbs.WCWRFlushErr},
		{verbs.WRLocalInv, 0, nil, verbs.WCLocQPOpErr, verbs.WCMWBindErr},
	} {
		for _, rxe := range []bool{true, false} {
			var r *rig
			want := c.said
			if rxe {
				r, want = newRXERig(t), c.want
			} else {
				r = newRig(t, "fake0")
			}
			r.up(r.qp)
			wr := verbs.SendWR{ID: 4, Opcode: c.op, Flags: c.flags | verbs.SendSignaled, InvalidateRKey: 5}
			if c.sge != nil {
				wr.SGL, wr.InvalidateRKey = []verbs.SGE{c.sge(r)}, 0
			}
			r.post(r.qp, wr)
			require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, uint32(c.said)))
			wcs := r.poll()
			require.Equal(t, []uint64{4}, wcIDs(wcs))
			require.Equal(t, want.String(), wcs[0].Status.String(), "%v %v", c.op, c.said)
			require.ErrorIs(t, r.qp.Err(), wcs[0].Status)
			cause := r.qp.Cause(&wcs[0])
			require.ErrorIs(t, cause, wcs[0].Status)
			var request *verbs.RequestError
			require.ErrorAs(t, cause, &request)
			require.Equal(t, rxe && want != verbs.WCWRFlushErr, request.Known)
			var access *verbs.AccessError
			if errors.As(cause, &access); rxe && want == verbs.WCLocProtErr {
				s := wr.SGL[0]
				require.Equal(t, &verbs.AccessError{Key: s.LKey, Addr: s.Addr, Length: uint64(s.Length)}, access)
			} else {
				require.Nil(t, access)
			}
		}
	}
}
