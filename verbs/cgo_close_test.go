// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// What was ibv_mr and ibv_mw is gone when a region or a window is closed; their keys can be asked for all the same.
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

// TestRefusedDeregistration: a region that the device does not let go of keeps its memory and its parents, and can be closed
// again.
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
