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

type closer interface{ Close() error }

// TestCountsOfObjects: of each kind there can be as many objects as the device says, the next one
// is refused by a name and a number before it reaches the device, and one that could not be made or
// that is closed leaves its place to another.
func TestCountsOfObjects(t *testing.T) {
	for _, c := range []struct {
		name, call, destroy string
		most                func(a *fakeverbs.Attr) *int
		has                 int // of them in a rig
		make                func(r *rig) (closer, error)
	}{
		{"max_pd", "ibv_alloc_pd", "ibv_dealloc_pd", func(a *fakeverbs.Attr) *int { return &a.MaxPD }, 1,
			func(r *rig) (closer, error) { return r.ctx.AllocPD() }},
		{"max_mr", "ibv_reg_mr_iova2", "", func(a *fakeverbs.Attr) *int { return &a.MaxMR }, 1,
			func(r *rig) (closer, error) { return r.pd.AllocMR(4096, verbs.AccessLocalWrite) }},
		{"max_mr", "ibv_reg_dmabuf_mr", "", func(a *fakeverbs.Attr) *int { return &a.MaxMR }, 1,
			func(r *rig) (closer, error) { return r.pd.RegDmabufMR(0, 4096, 0, 3, verbs.AccessLocalWrite) }},
		{"max_mw", "ibv_alloc_mw", "ibv_dealloc_mw", func(a *fakeverbs.Attr) *int { return &a.MaxMW }, 0,
			func(r *rig) (closer, error) { return r.pd.AllocMW(verbs.MWType2) }},
		{"max_cq", "ibv_create_cq", "ibv_destroy_cq", func(a *fakeverbs.Attr) *int { return &a.MaxCQ }, 1,
			func(r *rig) (closer, error) { return r.ctx.CreateCQ(verbs.CQConfig{}) }},
		{"max_qp", "ibv_create_qp", "ibv_destroy_qp", func(a *fakeverbs.Attr) *int { return &a.MaxQP }, 1,
			func(r *rig) (closer, error) {
				return r.pd.CreateQP(verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq})
			}},
		{"max_srq", "ibv_create_srq", "ibv_destroy_srq", func(a *fakeverbs.Attr) *int { return &a.MaxSRQ }, 0,
			func(r *rig) (closer, error) { return r.pd.CreateSRQ(verbs.SRQAttr{}) }},
		{"max_ah", "ibv_create_ah", "ibv_destroy_ah", func(a *fakeverbs.Attr) *int { return &a.MaxAH }, 0,
			func(r *rig) (closer, error) {
				return r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1})
			}},
	} {
		t.Run(c.call, func(t *testing.T) {
			fakeverbs.Start(t)
			attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
			*c.most(&attr) = c.has + 2
			fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
			r := openRig(t, "fake0")
			first, err := c.make(r)
			require.NoError(t, err)
			for range 3 {
				fakeverbs.Fail(c.call, 1, syscall.EIO)
				_, err = c.make(r)
				require.ErrorIs(t, err, syscall.EIO)
				second, err := c.make(r)
				require.NoError(t, err)

				before := fakeverbs.Calls(c.call)
				_, err = c.make(r)
				var le *verbs.LimitError
				require.ErrorAs(t, err, &le)
				require.Equal(t, verbs.LimitError{Name: c.name, Limit: uint64(c.has + 2), Value: uint64(c.has + 3)},
					*le)
				require.Equal(t, before, fakeverbs.Calls(c.call))
				if c.destroy != "" { // it is gone for the program, whatever the device says
					fakeverbs.FailAfter(c.destroy, 1, syscall.EIO)
					require.ErrorIs(t, second.Close(), syscall.EIO)
					continue
				}
				fakeverbs.Fail("ibv_dereg_mr", 1, syscall.EIO) // a region is not
				require.ErrorIs(t, second.Close(), syscall.EIO)
				_, err = c.make(r)
				require.ErrorAs(t, err, &le)
				require.NoError(t, second.Close())
			}
			require.NoError(t, first.Close())
		})
	}
}
