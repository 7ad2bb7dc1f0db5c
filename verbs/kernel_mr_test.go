// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDeregistrationOfABoundRegion: rxe says EINVAL of a region that windows are bound to.
func TestDeregistrationOfABoundRegion(t *testing.T) {
	refused := func(t *testing.T, r *rig, errno syscall.Errno, busy bool) {
		fakeverbs.Fail("ibv_dereg_mr", 1, errno)
		err := r.mr.Close()
		require.ErrorIs(t, err, errno)
		require.Equal(t, busy, errors.Is(err, verbs.ErrBusy))
	}
	t.Run("rxe", func(t *testing.T) {
		r := newRXERig(t)
		refused(t, r, syscall.EINVAL, true)
		refused(t, r, syscall.EBUSY, true)
		refused(t, r, syscall.EIO, false)
		require.NoError(t, r.mr.Close())
	})
	t.Run("any device", func(t *testing.T) {
		r := newRig(t, "fake0")
		refused(t, r, syscall.EINVAL, false)
		refused(t, r, syscall.EBUSY, true)
		require.NoError(t, r.mr.Close())
	})
}

// TestLockedMemory: ENOMEM of a registration names the limit of locked memory if there is one,
// another errno does not.
func TestLockedMemory(t *testing.T) {
	r := newRig(t, "fake0")
	var had unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &had))
	low := had
	low.Cur = min(had.Max, 1<<20)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &had)) }()
	for errno, told := range map[syscall.Errno]bool{syscall.ENOMEM: true, syscall.EIO: false} {
		fakeverbs.Fail("ibv_reg_mr_iova2", 1, errno)
		_, err := r.pd.AllocMR(8192, 0)
		require.ErrorIs(t, err, errno)
		fakeverbs.Fail("ibv_reg_dmabuf_mr", 1, errno)
		_, dmabuf := r.pd.RegDmabufMR(0, 8192, 0, 3, 0)
		require.ErrorIs(t, dmabuf, errno)
		for _, err := range []error{err, dmabuf} {
			if told {
				require.ErrorContains(t, err, "8192 bytes; the limit of locked memory")
			} else {
				require.NotContains(t, err.Error(), "locked memory")
			}
		}
	}
}

// TestResize: a CQ that was resized has the room that the device gave it.
func TestResize(t *testing.T) {
	for _, c := range []struct {
		name string
		rig  func(testing.TB) *rig
	}{
		{"any device", func(t testing.TB) *rig { return newRig(t, "fake0") }},
		{"rxe", func(t testing.TB) *rig { return newRXERig(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.rig(t)
			before := r.cq.CQE()
			require.NoError(t, r.cq.Resize(3000))
			require.Greater(t, r.cq.CQE(), before)
			require.GreaterOrEqual(t, r.cq.CQE(), 3000)
			asked := fakeverbs.Args("ibv_resize_cq")[1]
			if c.name == "rxe" { // and room for what the program does not see
				require.Greater(t, asked, uint64(3000))
			} else {
				require.EqualValues(t, 3000, asked)
			}
		})
	}
}

// TestSigAll: on a QP that signals every send each has a completion.
func TestSigAll(t *testing.T) {
	for name, rig := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        func(t testing.TB) *rig { return newRXERig(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			qp := r.newQP(verbs.QPConfig{SigAll: true})
			r.up(qp)
			r.post(qp, verbs.SendWR{ID: 5, Opcode: verbs.WRSend},
				verbs.SendWR{ID: 6, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			require.Equal(t, 2, fakeverbs.CompleteSend(qp.Num(), 2, 0))
			require.Equal(t, []uint64{5, 6}, wcIDs(r.poll()))
		})
	}
}
