// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

func (r *rig) window1() *verbs.MW {
	r.Helper()
	mw, err := r.pd.AllocMW(verbs.MWType1)
	require.NoError(r, err)
	return mw
}

func (r *rig) bind1(mw *verbs.MW) verbs.MWBind {
	return verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead}
}

// TestBindQueueFull: the bind of a type 1 window has a place in the send queue as asked for, not
// only in the device's, and one that has none leaves the window as it is.
func TestBindQueueFull(t *testing.T) {
	r := newRXERig(t)
	r.up(r.qp)
	mw, most := r.window1(), r.qp.Cap().MaxSendWR
	bind := func(id uint64) error { return r.qp.BindMW(id, verbs.SendSignaled, r.bind1(mw)) }
	key := mw.RKey()
	r.post(r.qp, writes(r.mr, most)...)
	require.ErrorIs(t, bind(1000), verbs.ErrQueueFull)
	require.Zero(t, fakeverbs.Calls("ibv_bind_mw"), "the device's queue may be longer")
	require.Equal(t, key, mw.RKey())

	// What has completed has given its place back, polled or not.
	require.Equal(t, 2, fakeverbs.CompleteSend(r.qp.Num(), 2, 0))
	require.NoError(t, bind(1001))
	require.NotEqual(t, key, mw.RKey())
	require.NoError(t, bind(1002))
	key = mw.RKey()
	require.ErrorIs(t, bind(1003), verbs.ErrQueueFull)
	require.Equal(t, key, mw.RKey())
	_, err := r.qp.PostSend(writes(r.mr, 1))
	require.ErrorIs(t, err, verbs.ErrQueueFull, "binds take places as others do")
	require.Equal(t, 2, fakeverbs.Calls("ibv_bind_mw"))

	require.Equal(t, most, fakeverbs.CompleteSend(r.qp.Num(), most, 0))
	var want []uint64
	for i := range most {
		want = append(want, uint64(i))
	}
	require.Equal(t, append(want, 1001, 1002), wcIDs(r.poll()))
}

// TestBindDeviceFull: a bind that the device refuses gives its place back.
func TestBindDeviceFull(t *testing.T) {
	r := newRXERig(t)
	r.up(r.qp)
	mw, most := r.window1(), r.qp.Cap().MaxSendWR
	r.post(r.qp, writes(r.mr, most-1)...)
	for range 2 {
		fakeverbs.Fail("ibv_bind_mw", 1, syscall.ENOMEM)
		err := r.qp.BindMW(1000, verbs.SendSignaled, r.bind1(mw))
		require.ErrorIs(t, err, verbs.ErrQueueFull)
		require.ErrorIs(t, err, syscall.ENOMEM)
	}
	require.NoError(t, r.qp.BindMW(1001, verbs.SendSignaled, r.bind1(mw)))
	require.Equal(t, most, fakeverbs.CompleteSend(r.qp.Num(), most, 0))
	wcs := r.poll()
	require.Len(t, wcs, most)
	require.EqualValues(t, 1001, wcs[most-1].ID)
}

// TestBindsUnsignalled: binds that make no completion are taken out of the device's CQ before they
// fill it.
func TestBindsUnsignalled(t *testing.T) {
	r := newRXERig(t)
	r.up(r.qp)
	mw := r.window1()
	fakeverbs.AutoComplete(true)
	const count = 5000 // more than the device's CQ has room for
	for i := range count {
		require.NoError(t, r.qp.BindMW(uint64(i), 0, r.bind1(mw)))
	}
	require.NoError(t, r.qp.BindMW(count, verbs.SendSignaled, r.bind1(mw)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wcs [2]verbs.WC
	n, err := r.cq.Wait(ctx, wcs[:])
	require.NoError(t, err)
	require.Equal(t, []uint64{count}, wcIDs(wcs[:n]))
	require.Equal(t, verbs.WCBindMW, wcs[0].Opcode)
	require.Equal(t, count+1, fakeverbs.Calls("ibv_bind_mw"))
}

// TestBindsOfOneWindow: a window of type 2 that is bound again is named by the key of the bind
// before, also in one list; drivers look for it by nothing else. fakeverbs records a fault for one
// that is named by an older key.
func TestBindsOfOneWindow(t *testing.T) {
	r := newRig(t, "fake0")
	r.up(r.qp)
	mw, err := r.pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	bind := func(key uint32) verbs.SendWR {
		return verbs.SendWR{Opcode: verbs.WRBindMW, RKey: key,
			Bind: &verbs.MWBind{MW: mw, MR: r.mr, Addr: r.mr.Addr(), Length: 8, Access: verbs.AccessRemoteRead}}
	}
	key := mw.RKey()
	r.post(r.qp, bind(key+1), writes(r.mr, 1)[0], bind(key+2), bind(key+3))
	require.Equal(t, key+3, mw.RKey())
	r.post(r.qp, bind(key+4))
	r.post(r.qp, bind(key+9))
	var keys []uint32
	for _, p := range fakeverbs.Posted() {
		if p.Opcode == uint32(verbs.WRBindMW) {
			keys = append(keys, p.BindRKey)
		}
	}
	require.Equal(t, []uint32{key + 1, key + 2, key + 3, key + 4, key + 9}, keys)

	// One that the device refuses leaves the window its key.
	fakeverbs.FailPost("ibv_post_send", 1, fakeverbs.PostFailure{Index: 0, Result: int(syscall.ENOMEM)})
	_, err = r.qp.PostSend([]verbs.SendWR{bind(key + 10)})
	require.ErrorIs(t, err, verbs.ErrQueueFull)
	require.Equal(t, key+9, mw.RKey())
	r.post(r.qp, bind(key+11))
}

// TestBindByState: a window of type 1 is bound from RTS on; in ERR the bind is flushed and does not
// reach the device, and so it is behind a request that will fail.
func TestBindByState(t *testing.T) {
	for name, rig := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        func(t testing.TB) *rig { return newRXERig(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			mw := r.window1()
			key := mw.RKey()
			require.ErrorIs(t, r.qp.BindMW(1, verbs.SendSignaled, r.bind1(mw)), verbs.ErrState)
			require.Zero(t, fakeverbs.Calls("ibv_bind_mw"))
			r.up(r.qp)
			require.NoError(t, r.qp.BindMW(2, verbs.SendSignaled, r.bind1(mw)))
			require.NotEqual(t, key, mw.RKey())
			require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
			require.Equal(t, []uint64{2}, wcIDs(r.poll()))
			if name != "rxe" {
				return
			}
			key = mw.RKey()
			r.qp.Provider().(verbs.ProviderQPLimiter).SetDepths(0, 0)
			r.post(r.qp, append(writes(r.mr, 1), reads(r.mr, 3, 1)...)...)
			require.NoError(t, r.qp.BindMW(4, verbs.SendSignaled, r.bind1(mw)))
			require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
			var wcs []verbs.WC
			require.Eventually(t, func() bool { wcs = append(wcs, r.poll()...); return len(wcs) == 3 }, 30*time.Second,
				time.Millisecond)
			require.Equal(t, []uint64{0, 3, 4}, wcIDs(wcs))
			require.Equal(t, []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocQPOpErr, verbs.WCWRFlushErr},
				[]verbs.WCStatus{wcs[0].Status, wcs[1].Status, wcs[2].Status})
			require.Equal(t, verbs.QPStateErr, r.qp.State())
			require.NoError(t, r.qp.BindMW(5, 0, r.bind1(mw)))
			wcs = r.poll()
			require.Equal(t, []uint64{5}, wcIDs(wcs))
			require.Equal(t, verbs.WCWRFlushErr, wcs[0].Status)
			require.Equal(t, 1, fakeverbs.Calls("ibv_bind_mw"))
			require.Equal(t, key, mw.RKey())
		})
	}
}
