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

// TestCloseLeavesGroups: a QP is closed while it is in groups, which the kernel refuses; the
// provider takes it out of them first, and of no others.
func TestCloseLeavesGroups(t *testing.T) {
	r := newRig(t, "fake0")
	group := func(i byte) verbs.GID { return verbs.GID{0: 0xff, 1: 0x0e, 15: i} }
	qp, other := r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD}), r.newQP(verbs.QPConfig{Type: verbs.QPTypeUD})
	require.NoError(t, other.AttachMcast(group(1), 0))
	for i := range byte(3) {
		require.NoError(t, qp.AttachMcast(group(i), 0xc000+uint16(i)))
	}
	// One that it has left, one that it could not leave, and one in which it never was.
	require.NoError(t, qp.DetachMcast(group(0), 0xc000))
	fakeverbs.Fail("ibv_detach_mcast", 1, syscall.EIO)
	require.ErrorIs(t, qp.DetachMcast(group(1), 0xc001), syscall.EIO)
	fakeverbs.Fail("ibv_attach_mcast", 1, syscall.EIO)
	require.ErrorIs(t, qp.AttachMcast(group(3), 0), syscall.EIO)

	before := fakeverbs.Calls("ibv_detach_mcast")
	require.NoError(t, qp.Close())
	require.Equal(t, before+2, fakeverbs.Calls("ibv_detach_mcast"))
	require.NoError(t, other.DetachMcast(group(1), 0), "it is still in")
	require.NoError(t, other.Close())
	require.Equal(t, before+3, fakeverbs.Calls("ibv_detach_mcast"))
}
