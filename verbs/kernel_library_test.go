// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestOlderLibrary: what an older libibverbs lacks is refused where it is called, and everything
// else works.
func TestOlderLibrary(t *testing.T) {
	if !fakeverbs.InProcessWithout(t, "ibv_reg_mr_iova", "ibv_reg_mr_iova2", "_ibv_query_gid_ex", "ibv_reg_dmabuf_mr") {
		return
	}
	r := newRig(t, "fake0")
	require.NoError(t, verbs.RDMACore())
	_, err := r.ctx.QueryGID(1, 0)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	_, err = r.pd.RegDmabufMR(0, 4096, 0, 1, verbs.AccessLocalWrite)
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	mem := make([]byte, 8192)
	mr, err := r.pd.RegMR(mem, verbs.AccessLocalWrite|verbs.AccessRelaxedOrdering)
	require.NoError(t, err)
	require.Equal(t, 1, fakeverbs.Calls("ibv_reg_mr")-1, "one for the rig's region")
	require.EqualValues(t, verbs.AccessLocalWrite, fakeverbs.Args("ibv_reg_mr")[3],
		"without the hint, which such a library does not know")
	require.NoError(t, mr.Close())
	r.up(r.qp)
	r.post(r.qp, verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, 0))
	require.Len(t, r.poll(), 1)
}

// TestTooOldLibrary: a library without what every version in use has is not used, and the reason
// names it.
func TestTooOldLibrary(t *testing.T) {
	if !fakeverbs.InProcessWithout(t, "ibv_create_qp") {
		return
	}
	err := verbs.RDMACore()
	require.ErrorIs(t, err, verbs.ErrNotSupported)
	require.EqualError(t, err, "library libibverbs.so.1 is too old: it has no ibv_create_qp")
	devices, err := verbs.Devices()
	require.NoError(t, err)
	require.Empty(t, devices)
}
