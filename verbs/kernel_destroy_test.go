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

// TestErrorsOfDestroy: a call that destroys something and fails says which one it was, on which
// device, and why. The handle is closed all the same, and what it was made of can be closed too. A
// region is kept: see TestRefusedDeregistration.
func TestErrorsOfDestroy(t *testing.T) {
	for call, object := range map[string]func(r *rig) (interface{ Close() error }, error){
		"ibv_dealloc_pd": func(r *rig) (interface{ Close() error }, error) { return r.ctx.AllocPD() },
		"ibv_dealloc_mw": func(r *rig) (interface{ Close() error },
			error) {
			return r.pd.AllocMW(verbs.MWType2)
		},
		"ibv_destroy_cq": func(r *rig) (interface{ Close() error },
			error) {
			return r.ctx.CreateCQ(verbs.CQConfig{})
		},
		"ibv_destroy_comp_channel": func(r *rig) (interface{ Close() error },
			error) {
			return r.ctx.CreateCompChannel()
		},
		"ibv_destroy_qp": func(r *rig) (interface{ Close() error }, error) {
			return r.pd.CreateQP(verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq})
		},
		"ibv_destroy_srq": func(r *rig) (interface{ Close() error }, error) { return r.pd.CreateSRQ(verbs.SRQAttr{}) },
		"ibv_destroy_ah": func(r *rig) (interface{ Close() error }, error) {
			return r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1})
		},
	} {
		t.Run(call, func(t *testing.T) {
			r := newRig(t, "fake0")
			o, err := object(r)
			require.NoError(t, err)
			before := fakeverbs.Calls(call) // the first QP of a process is made to find out max_inline_data
			fakeverbs.FailAfter(call, 1, syscall.EIO)
			err = o.Close()
			require.ErrorIs(t, err, syscall.EIO)
			for _, part := range []string{"fake0", call + ":", "EIO"} {
				require.ErrorContains(t, err, part)
			}
			var op *verbs.OpError
			require.ErrorAs(t, err, &op)
			require.NoError(t, o.Close(), "it is closed")
			require.Equal(t, before+1, fakeverbs.Calls(call))
		})
	}
	t.Run("ibv_dereg_mr", func(t *testing.T) {
		r := newRig(t, "fake0")
		fakeverbs.Fail("ibv_dereg_mr", 1, syscall.EIO)
		err := r.mr.Close()
		require.ErrorIs(t, err, syscall.EIO)
		for _, part := range []string{"fake0", "ibv_dereg_mr:", "EIO"} {
			require.ErrorContains(t, err, part)
		}
		var op *verbs.OpError
		require.ErrorAs(t, err, &op)
		require.NoError(t, r.mr.Close())
	})
	t.Run("ibv_close_device", func(t *testing.T) {
		r := newRig(t, "fake0")
		other, err := r.dev.Open()
		require.NoError(t, err)
		fakeverbs.FailAfter("ibv_close_device", 1, syscall.EIO)
		err = other.Close()
		require.ErrorContains(t, err, "fake0")
		require.ErrorContains(t, err, "ibv_close_device: the library gave no errno", "by its manual it gives none")
		var op *verbs.OpError
		require.ErrorAs(t, err, &op)
		require.NoError(t, other.Close())
	})
}
