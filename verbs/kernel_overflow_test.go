// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// requireOverflow: the CQ's overflow is told by one event, is the reason for which the QP fails,
// and what Poll returns after what was there before.
func (r *rig) requireOverflow(qp *verbs.QP, before ...uint64) {
	r.Helper()
	ev, err := r.ctx.WaitEvent(limited(r))
	require.NoError(r, err)
	require.Equal(r, verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: r.cq, Err: verbs.ErrCQOverflow}, ev)
	requireFired(r, r.failed(qp))
	require.Equal(r, verbs.QPStateErr, qp.State())
	require.ErrorIs(r, qp.Err(), verbs.ErrCQOverflow)
	var ids []uint64
	wcs := make([]verbs.WC, 200)
	for n := 1; n > 0; {
		if n, err = r.cq.Poll(wcs); n > 0 {
			require.NoError(r, err)
		}
		ids = append(ids, wcIDs(wcs[:n])...)
	}
	require.GreaterOrEqual(r, len(ids), len(before))
	require.Equal(r, before, ids[:len(before)], "a device may flush others into the room that there is then")
	require.ErrorIs(r, err, verbs.ErrCQOverflow)
	_, err = r.cq.Wait(limited(r), wcs)
	require.ErrorIs(r, err, verbs.ErrCQOverflow)
}

// TestCQOverflowOfDevice: the device has no room for a completion.
func TestCQOverflowOfDevice(t *testing.T) {
	r := newRig(t, "fake0")
	cq, err := r.ctx.CreateCQ(verbs.CQConfig{CQE: 4})
	require.NoError(t, err)
	r.cq = cq
	qp := r.newQP(verbs.QPConfig{})
	r.up(qp)
	require.NoError(t, r.qp.Close(), "it is of another CQ")
	r.post(qp, writes(r.mr, 6)...)
	require.Equal(t, 5, fakeverbs.CompleteSend(qp.Num(), 5, 0))
	r.requireOverflow(qp, 0, 1, 2, 3)
}

// TestCQOverflowHere: the device's queue has room, that of the program has none.
func TestCQOverflowHere(t *testing.T) {
	fakeverbs.Start(t)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake1)
	attr.MaxCQE = verbs.DefaultCQE
	fakeverbs.SetDeviceAttr(fakeverbs.Fake1, attr)
	r := openRig(t, "fake1")
	require.NoError(t, r.qp.Close(), "it is of another CQ")
	var err error
	r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{CQE: 16})
	require.NoError(t, err)
	room := r.cq.CQE()
	qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: room}})
	r.up(qp)
	r.post(qp, writes(r.mr, room)...)
	require.Equal(t, room, fakeverbs.CompleteSend(qp.Num(), room, 0))
	require.Eventually(t, func() bool { // as the queue is full, completions are taken from the device
		_, err := qp.PostSend([]verbs.SendWR{{ID: 1000, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
		fakeverbs.CompleteSend(qp.Num(), 1, 0)
		return err != nil || qp.State() == verbs.QPStateErr
	}, 30*time.Second, time.Millisecond)
	var want []uint64
	for i := range room {
		want = append(want, uint64(i))
	}
	r.requireOverflow(qp, want...)
}

// TestCQOverflowLate: the device takes its time, and nobody polls.
func TestCQOverflowLate(t *testing.T) {
	fakeverbs.Start(t)
	attr := fakeverbs.DeviceAttr(fakeverbs.Fake1)
	attr.MaxCQE = verbs.DefaultCQE
	fakeverbs.SetDeviceAttr(fakeverbs.Fake1, attr)
	r := openRig(t, "fake1")
	require.NoError(t, r.qp.Close(), "it is of another CQ")
	var err error
	r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{CQE: 16})
	require.NoError(t, err)
	room := r.cq.CQE()
	qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: room + 1}})
	r.up(qp)
	r.post(qp, writes(r.mr, room+1)...)
	var want []uint64
	for i := range room {
		time.Sleep(time.Second / time.Duration(room))
		require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
		want = append(want, uint64(i))
	}
	require.Equal(t, 1, fakeverbs.CompleteSend(qp.Num(), 1, 0))
	r.requireOverflow(qp, want...)
}

// TestCQOverflowWakes: who has armed a CQ that overflows gets an event, and Wait ends; who has not
// gets none.
func TestCQOverflowWakes(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			ch, err := r.ctx.CreateCompChannel()
			require.NoError(t, err)
			cq, err := r.ctx.CreateCQ(verbs.CQConfig{Channel: ch})
			require.NoError(t, err)
			require.NoError(t, cq.ReqNotify(false))
			fakeverbs.InjectAsync(r.index(), uint32(verbs.EventCQErr), fakeverbs.LastID("CQ"))
			got, err := ch.Wait(limited(t))
			require.NoError(t, err)
			require.Same(t, cq, got)
			_, err = cq.Poll(make([]verbs.WC, 1))
			require.ErrorIs(t, err, verbs.ErrCQOverflow)
			require.NoError(t, cq.Close())
			require.NoError(t, ch.Close())
		})
	}
}
