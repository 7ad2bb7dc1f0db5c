// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// rig is one of each object on a device.
type rig struct{ ctx, pd, ch, cq, qp object }

func open(t *testing.T, dev int) object {
	t.Helper()
	devices, err := callDevices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	ctx, err := devices[dev].open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.closeDevice()) })
	return ctx
}

func newRig(t *testing.T, dev int) rig {
	t.Helper()
	Start(t)
	r := rig{ctx: open(t, dev)}
	var err error
	r.pd, err = r.ctx.allocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.pd.deallocPD()) })
	r.ch, err = r.ctx.createChannel()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.ch.destroyChannel()) })
	r.cq, err = r.ctx.createCQ(16, r.ch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.cq.destroyCQ()) })
	r.qp, err = r.pd.createQP(2, r.cq, r.cq, 8)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.qp.destroyQP()) })
	return r
}

const (
	maskInit = 1<<4 | 1<<5 | 1<<3
	maskRTR  = 1<<7 | 1<<8 | 1<<20 | 1<<12 | 1<<17 | 1<<15
	maskRTS  = 1<<9 | 1<<10 | 1<<11 | 1<<16 | 1<<13
)

func (r rig) up(t *testing.T) {
	t.Helper()
	require.NoError(t, r.qp.modify(1, maskInit))
	require.NoError(t, r.qp.modify(2, maskRTR))
	require.NoError(t, r.qp.modify(3, maskRTS))
}

func TestNothingIsLeftToTheLibraries(t *testing.T) {
	left, err := Unfaked()
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDevices(t *testing.T) {
	Start(t)
	ctx := open(t, Fake0)
	maxQP, err := ctx.queryDevice()
	require.NoError(t, err)
	require.Equal(t, DeviceAttr(Fake0).MaxQP, maxQP)
	a := DeviceAttr(Fake0)
	a.MaxQP = 7
	SetDeviceAttr(Fake0, a)
	maxQP, err = ctx.queryDevice()
	require.NoError(t, err)
	require.Equal(t, 7, maxQP)
}
