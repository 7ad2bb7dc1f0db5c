// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// What was ibv_mr and ibv_mw is gone when a region or a window is closed; their keys can be asked
// for all the same.
func TestKeysOfWhatIsClosed(t *testing.T) {
	fakeverbs.Start(t)
	devices, err := verbs.Devices()
	require.NoError(t, err)
	require.Equal(t, "fake0", devices[0].Info().Name)
	ctx, err := devices[0].Open()
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(t, err)
	mw, err := pd.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	lkey, rkey, window := mr.LKey(), mr.RKey(), mw.RKey()
	require.NotEqual(t, lkey, rkey)
	registered, ok := fakeverbs.MRByKey(lkey)
	require.True(t, ok)
	require.Equal(t, registered.RKey, rkey)
	require.NoError(t, mr.Close())
	require.NoError(t, mw.Close())
	require.Equal(t, []uint32{lkey, rkey, window}, []uint32{mr.LKey(), mr.RKey(), mw.RKey()})
	require.NoError(t, pd.Close())
	require.NoError(t, ctx.Close())
}

// TestRefusedDeregistration: a region that the device does not let go of keeps its memory and its
// parents, and can be closed again.
func TestRefusedDeregistration(t *testing.T) {
	fakeverbs.Start(t)
	dev, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	ctx, err := dev.Open()
	require.NoError(t, err)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite)
	require.NoError(t, err)

	fakeverbs.Fail("ibv_dereg_mr", 1, syscall.EBUSY)
	err = mr.Close()
	require.ErrorIs(t, err, verbs.ErrBusy)
	require.ErrorIs(t, err, syscall.EBUSY)
	mr.Bytes()[4095] = 1 // would fault
	require.ErrorIs(t, pd.Close(), verbs.ErrBusy)

	require.NoError(t, mr.Close())
	require.NoError(t, mr.Close())
	require.NoError(t, pd.Close())
	require.NoError(t, ctx.Close())
}

// TestCloseDuringCalls closes a QP and its CQ while goroutines post and poll: no call reaches what
// is destroyed, which the library would report, and all end with ErrClosed.
func TestCloseDuringCalls(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		t.Run(dev, func(t *testing.T) {
			r := newRig(t, dev)
			for range 10 {
				var err error
				r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{CQE: 4096})
				require.NoError(t, err)
				qp := r.newQP(verbs.QPConfig{})
				r.up(qp)
				ends := make(chan error)
				var begun sync.WaitGroup
				until := func(call func() error) {
					begun.Add(1)
					go func() {
						err := call()
						for begun.Done(); err == nil || errors.Is(err, verbs.ErrQueueFull); {
							err = call()
						}
						ends <- err
					}()
				}
				for range 2 {
					wrs, wcs := writes(r.mr, 2), make([]verbs.WC, 4)
					until(func() error { _, err := qp.PostSend(wrs); return err })
					until(func() error { _, err := qp.PostRecv(make([]verbs.RecvWR, 2)); return err })
					until(func() error { _, err := r.cq.Poll(wcs); return err })
				}
				begun.Wait()
				require.NoError(t, qp.Close())
				require.NoError(t, r.cq.Close())
				for range 6 {
					require.ErrorIs(t, <-ends, verbs.ErrClosed)
				}
			}
		})
	}
}

// TestCloseWaitsForCalls closes while a call is in C, which then finds everything still there.
func TestCloseWaitsForCalls(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		for name, call := range map[string]func(r *rig) error{
			"ibv_post_send": func(r *rig) error { _, err := r.qp.PostSend(writes(r.mr, 1)); return err },
			"ibv_post_recv": func(r *rig) error { _, err := r.qp.PostRecv(make([]verbs.RecvWR, 1)); return err },
			"ibv_poll_cq":   func(r *rig) error { _, err := r.cq.Poll(make([]verbs.WC, 1)); return err },
		} {
			t.Run(dev+"/"+name, func(t *testing.T) {
				r := newRig(t, dev)
				r.up(r.qp)
				fakeverbs.Delay(name, 20*time.Millisecond)
				got := make(chan error)
				go func() { got <- call(r) }()
				require.Eventually(t, fakeverbs.Delaying, 10*time.Second, 10*time.Microsecond)
				require.NoError(t, r.qp.Close())
				require.NoError(t, r.cq.Close())
				require.NoError(t, <-got)
				require.ErrorIs(t, call(r), verbs.ErrClosed)
			})
		}
	}
}
