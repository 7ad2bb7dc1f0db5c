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

func (r *rig) to(qp *verbs.QP, state verbs.QPState) {
	r.Helper()
	require.NoError(r, qp.Modify(verbs.QPAttr{State: state}, verbs.QPAttrState))
}

func (r *rig) failed(qp *verbs.QP) <-chan struct{} {
	return qp.Provider().(verbs.ProviderQPWatcher).Failed()
}

func requireFired(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the failure was not told")
	}
}

func requireNotFired(t testing.TB, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
		require.FailNow(t, "a failure was told")
	default:
	}
}

// resetRigs are devices on which a QP that has been connected can go to RESET.
func resetRigs(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Run("any device", func(t *testing.T) { test(t, newRig(t, "fake0")) })
	t.Run("rxe", func(t *testing.T) { test(t, newRXERig(t)) })
}

// TestResetForgets: a QP that went to RESET is as new: without what was posted, without the reason
// of its end, and it can fail and be drained once more.
func TestResetForgets(t *testing.T) {
	resetRigs(t, func(t *testing.T, r *rig) {
		for round := range 3 {
			failed := r.failed(r.qp)
			requireNotFired(t, failed)
			r.up(r.qp)
			setDepths(r.qp, 2)
			require.NoError(t, r.qp.Err())
			r.post(r.qp, writes(r.mr, 3)...)
			_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 70}, {ID: 71}})
			require.NoError(t, err)
			if round > 0 { // from ERR
				marks := fakeverbs.Calls("ibv_post_send") + fakeverbs.Calls("ibv_post_recv")
				require.NoError(t, r.qp.Drain(limited(t)))
				if !hasLedger(r) {
					require.Equal(t, marks+2, fakeverbs.Calls("ibv_post_send")+fakeverbs.Calls("ibv_post_recv"),
						"a mark for each queue")
				}
				requireFired(t, failed)
				require.ErrorIs(t, r.qp.Err(), verbs.ErrClosed)
				require.Equal(t, []uint64{0, 1, 2, 70, 71}, wcIDs(r.poll()))
			}
			setDepths(r.qp, 0)
			r.to(r.qp, verbs.QPStateReset)
			require.Empty(t, r.poll())
			require.NoError(t, r.qp.Err())
			require.Equal(t, verbs.QPStateReset, r.qp.State())
			_, err = r.qp.PostRecv([]verbs.RecvWR{{}})
			require.ErrorIs(t, err, verbs.ErrState)
		}
		r.up(r.qp)
		setDepths(r.qp, 2)
		r.post(r.qp, append(reads(r.mr, 4, 1), writes(r.mr, 1)...)...)
		fakeverbs.CompleteSend(r.qp.Num(), 2, 0)
		wcs := r.poll()
		require.Equal(t, []uint64{4, 0}, wcIDs(wcs))
		require.Equal(t, verbs.WCSuccess, wcs[1].Status)
	})
}

// setDepths tells a QP its depths, if it wants to know.
func setDepths(qp *verbs.QP, n int) {
	if l, ok := qp.Provider().(verbs.ProviderQPLimiter); ok {
		l.SetDepths(n, n)
	}
}

func hasLedger(r *rig) bool {
	attr, err := r.ctx.QueryDevice()
	require.NoError(r, err)
	return attr.VendorID == 0xffffff
}

// TestResetFlushesAnew: what is posted while a QP goes to ERR is not flushed before the device has
// been told, also if the QP has been in ERR and RESET before: until then the device may still write
// to the memory of what it has.
func TestResetFlushesAnew(t *testing.T) {
	for name, post := range map[string]func(r *rig) error{
		"receives": func(r *rig) error { _, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 2}}); return err },
		"sends": func(r *rig) error {
			_, err := r.qp.PostSend([]verbs.SendWR{{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRXERig(t)
			for range 2 {
				r.up(r.qp)
				_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 1}})
				require.NoError(t, err)
				r.post(r.qp, verbs.SendWR{ID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})

				fakeverbs.Hold("ibv_modify_qp")
				ended := make(chan error, 1)
				go func() { ended <- r.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) }()
				require.Eventually(t, fakeverbs.Holding, 30*time.Second, 100*time.Microsecond)
				require.NoError(t, post(r))
				require.Empty(t, r.poll(), "the device still has the requests")
				fakeverbs.Release()
				require.NoError(t, <-ended)
				wcs := r.poll()
				require.ElementsMatch(t, []uint64{1, 1, 2}, wcIDs(wcs))
				for _, wc := range wcs {
					require.Equal(t, verbs.WCWRFlushErr, wc.Status)
				}
				r.to(r.qp, verbs.QPStateReset)
			}
		})
	}
}

// TestResetRefused: a QP that the device does not reset is in ERR, and all that it had is flushed.
func TestResetRefused(t *testing.T) {
	resetRigs(t, func(t *testing.T, r *rig) {
		r.up(r.qp)
		r.post(r.qp, writes(r.mr, 2)...)
		failed := r.failed(r.qp)
		fakeverbs.Fail("ibv_modify_qp", 1, syscall.EIO)
		require.ErrorIs(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState), syscall.EIO)
		require.Equal(t, verbs.QPStateErr, r.qp.State())
		require.ErrorIs(t, r.qp.Err(), syscall.EIO)
		requireFired(t, failed)
		require.NoError(t, r.qp.Drain(limited(t)))
		require.Equal(t, []uint64{0, 1}, wcIDs(r.poll()))
		qp, ok := fakeverbs.QPByNum(r.qp.Num())
		require.True(t, ok)
		require.EqualValues(t, verbs.QPStateErr, qp.State, "the device's too")
	})
}
