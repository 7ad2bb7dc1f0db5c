// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// rxe does not send a fenced request again while a Read or atomic behind it is unanswered. So
// fenced requests wait in the provider, and the device gets them without the flag.

// fenceRig has a QP of which the device answers nothing by itself.
func fenceRig(t *testing.T) *rig {
	t.Helper()
	r := newRXERig(t)
	r.up(r.qp)
	return r
}

func fenced(wr verbs.SendWR) verbs.SendWR {
	wr.Flags |= verbs.SendFence
	return wr
}

// atomicAdd makes a FetchAdd.
func (r *rig) atomicAdd(id, add uint64) verbs.SendWR {
	return verbs.SendWR{ID: id, Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, RKey: 7, Add: add,
		SGL: []verbs.SGE{r.sge(0, 8)}}
}

// TestRxeFence: a fenced request follows when no Read and no atomic before it is unanswered, and
// what is behind it with it.
func TestRxeFence(t *testing.T) {
	for name, wr := range map[string]func(r *rig) verbs.SendWR{
		"Write":    func(r *rig) verbs.SendWR { return writes(r.mr, 1)[0] },
		"Read":     func(r *rig) verbs.SendWR { return reads(r.mr, 0, 1)[0] },
		"FetchAdd": func(r *rig) verbs.SendWR { return r.atomicAdd(0, 5) },
		"inv":      func(*rig) verbs.SendWR { return verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: 9} },
	} {
		t.Run(name, func(t *testing.T) {
			r := fenceRig(t)
			r.post(r.qp, reads(r.mr, 0, 1)[0], r.atomicAdd(1, 3), fenced(wr(r)), reads(r.mr, 3, 1)[0])
			for _, has := range []int{2, 2, 4} {
				require.Len(t, fakeverbs.Posted(), has)
				fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
				r.poll()
			}
			require.Equal(t, uint32(wr(r).Opcode), fakeverbs.Posted()[2].Opcode)
			fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
			r.poll()
			r.post(r.qp, fenced(wr(r)))
			require.Len(t, fakeverbs.Posted(), 5, "nothing to wait for")
			for _, p := range fakeverbs.Posted() {
				require.Zero(t, p.Flags&uint32(verbs.SendFence))
			}
		})
	}
}

// TestRxeFenceOnly: nothing but a fence waits, however many Reads there are.
func TestRxeFenceOnly(t *testing.T) {
	r := fenceRig(t)
	r.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(2, 2)
	r.post(r.qp, append(reads(r.mr, 0, 5), r.atomicAdd(5, 1), writes(r.mr, 1)[0])...)
	r.post(r.qp, verbs.SendWR{Opcode: verbs.WRRDMARead, RKey: 7})
	require.Len(t, fakeverbs.Posted(), 8)
}

// TestRxeFenceAtomic: an atomic is waited for as a Read is.
func TestRxeFenceAtomic(t *testing.T) {
	r := fenceRig(t)
	r.post(r.qp, r.atomicAdd(0, 1), fenced(writes(r.mr, 1)[0]))
	require.Len(t, fakeverbs.Posted(), 1)
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	r.poll()
	require.Len(t, fakeverbs.Posted(), 2)
}

// TestRxeFenceOperands: atomics that have waited, some of them for others, have their own operands.
func TestRxeFenceOperands(t *testing.T) {
	r := fenceRig(t)
	r.post(r.qp, reads(r.mr, 0, 1)...)
	for i := range uint64(40) {
		cas := verbs.SendWR{ID: 100 + i, Opcode: verbs.WRAtomicCmpAndSwp, Flags: verbs.SendSignaled, RKey: 7,
			Compare: i, Swap: 1000 + i, SGL: []verbs.SGE{r.sge(8, 8)}}
		r.post(r.qp, writes(r.mr, 1)[0], fenced(r.atomicAdd(i, i)), cas)
		if i > 10 { // about as many leave as come
			fakeverbs.CompleteSend(r.qp.Num(), 3, 0)
			r.poll()
		}
	}
	for has := 0; has < 1+3*40; {
		fakeverbs.CompleteSend(r.qp.Num(), 3, 0)
		r.poll()
		now := len(fakeverbs.Posted())
		require.Greater(t, now, has)
		has = now
	}
	for i, p := range fakeverbs.Posted()[1:] {
		n := uint64(i / 3)
		switch verbs.WROpcode(p.Opcode) {
		case verbs.WRAtomicFetchAndAdd:
			require.Equal(t, []uint64{1, n}, []uint64{uint64(i % 3), p.CompareAdd})
		case verbs.WRAtomicCmpAndSwp:
			require.Equal(t, []uint64{2, n, 1000 + n}, []uint64{uint64(i % 3), p.CompareAdd, p.Swap})
		default:
			require.Equal(t, 0, i%3)
		}
	}
}

// TestRxeFenceBind: a bind does not wait, nor does what is before it: it names objects that may be
// closed.
func TestRxeFenceBind(t *testing.T) {
	t.Run("type 2", func(t *testing.T) {
		r := fenceRig(t)
		mw, err := r.pd.AllocMW(verbs.MWType2)
		require.NoError(t, err)
		r.post(r.qp, reads(r.mr, 0, 1)[0], fenced(writes(r.mr, 1)[0]))
		require.Len(t, fakeverbs.Posted(), 1)
		r.post(r.qp, verbs.SendWR{ID: 2, Opcode: verbs.WRBindMW, RKey: mw.NextRKey(),
			Bind: &verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead}})
		require.NoError(t, mw.Close())
		posted := fakeverbs.Posted()
		require.Len(t, posted, 3)
		require.NotZero(t, posted[1].Flags&uint32(verbs.SendFence), "the device's own fence")
		require.Equal(t, uint32(verbs.WRBindMW), posted[2].Opcode)
	})
	t.Run("type 1", func(t *testing.T) {
		r := fenceRig(t)
		mw := r.window1()
		r.post(r.qp, reads(r.mr, 0, 1)[0], fenced(writes(r.mr, 1)[0]))
		require.Len(t, fakeverbs.Posted(), 1)
		require.NoError(t, r.qp.BindMW(2, verbs.SendSignaled, r.bind1(mw)))
		posted := fakeverbs.Posted()
		require.GreaterOrEqual(t, len(posted), 2)
		require.Equal(t, uint32(verbs.WRRDMAWrite), posted[1].Opcode)
		require.NotZero(t, posted[1].Flags&uint32(verbs.SendFence), "the device's own fence")
		fakeverbs.CompleteSend(r.qp.Num(), 3, 0)
		require.Equal(t, []uint64{0, 0, 2}, wcIDs(r.poll()))
	})
}

// TestRxeFenceBindFails: the device takes nothing of what has waited, so the bind is flushed with
// it.
func TestRxeFenceBindFails(t *testing.T) {
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		t.Run(typ.String(), func(t *testing.T) {
			r := fenceRig(t)
			mw, err := r.pd.AllocMW(typ)
			require.NoError(t, err)
			r.post(r.qp, reads(r.mr, 0, 1)[0], fenced(writes(r.mr, 1)[0]))
			fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Result: int(syscall.EINVAL)})
			if typ == verbs.MWType1 {
				require.NoError(t, r.qp.BindMW(2, verbs.SendSignaled, r.bind1(mw)))
			} else {
				r.post(r.qp, verbs.SendWR{ID: 2, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, RKey: mw.NextRKey(),
					Bind: &verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8,
						Access: verbs.AccessRemoteRead}})
			}
			var wcs []verbs.WC
			require.Eventually(t, func() bool { wcs = append(wcs, r.poll()...); return len(wcs) == 3 }, 10*time.Second,
				time.Millisecond)
			require.Equal(t, []uint64{0, 0, 2}, wcIDs(wcs))
			for _, wc := range wcs {
				require.Equal(t, verbs.WCWRFlushErr, wc.Status)
			}
			require.ErrorIs(t, r.qp.Err(), syscall.EINVAL)
			require.Len(t, fakeverbs.Posted(), 1)
		})
	}
}

// TestRxeFenceDrained: what waits goes on in SQD too, in which the device keeps it for later.
func TestRxeFenceDrained(t *testing.T) {
	r := fenceRig(t)
	r.post(r.qp, reads(r.mr, 0, 1)[0], fenced(writes(r.mr, 1)[0]))
	require.NoError(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateSQD}, verbs.QPAttrState))
	fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
	r.poll()
	require.Len(t, fakeverbs.Posted(), 2)
}
