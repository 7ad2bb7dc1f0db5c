// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// newerRig is a rig on a kernel that knows more than this package.
func newerRig(t *testing.T) *rig {
	t.Helper()
	fakeverbs.Start(t)
	fakeverbs.SetNewer(true)
	return openRig(t, "fake0")
}

// TestNewerFlags: flags that have no name here are handed on as they are, in both directions.
func TestNewerFlags(t *testing.T) {
	r := newerRig(t)
	const flag = 1 << 30
	attr, err := r.ctx.QueryDevice()
	require.NoError(t, err)
	require.NotZero(t, attr.DeviceCapFlags&flag)
	_, err = r.ctx.QueryPort(1)
	require.NoError(t, err)

	// FLUSH_GLOBAL and FLUSH_PERSISTENT, which the connection manager of Linux 6.12 asks for on
	// rxe, and one more.
	const asked = verbs.AccessRemoteWrite | 3<<8 | flag
	require.NoError(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: asked},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	had, err := r.qp.Query()
	require.NoError(t, err)
	require.Equal(t, asked, had.AccessFlags)
	require.NoError(t, r.qp.Modify(had, verbs.QPAttrAccessFlags), "what the kernel gives it takes")
	// A path MTU that has no name is for the device to refuse; a flag that has one, and that no QP
	// has, is refused here.
	path := verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU4096 + 1,
		AH: verbs.AHAttr{IsGlobal: true, PortNum: 1}}
	require.NoError(t, r.qp.Modify(path,
		verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|
			verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer))
	had.AccessFlags |= verbs.AccessOnDemand
	other := r.newQP(verbs.QPConfig{})
	require.ErrorIs(t, other.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: had.AccessFlags},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags), verbs.ErrInvalid)
}

// TestNewerCompletions: a completion has the flags that are known.
func TestNewerCompletions(t *testing.T) {
	r := newerRig(t)
	r.up(r.qp)
	fakeverbs.InjectWC(r.qp.Num(), true, fakeverbs.WC{WRID: 1, Opcode: 129, Imm: 5, Flags: uint32(verbs.WCWithImm)})
	fakeverbs.InjectWC(r.qp.Num(), true, fakeverbs.WC{WRID: 2, Opcode: 128})
	require.Equal(t, []verbs.WC{
		{ID: 1, Opcode: verbs.WCRecvRDMAWithImm, Flags: verbs.WCWithImm, Imm: 5, Imm64: 5 << 32, QPNum: r.qp.Num()},
		{ID: 2, Opcode: verbs.WCRecv, QPNum: r.qp.Num()},
	}, r.poll())
}

// TestNewerEvents: an event of a kind that has no name is told, without an object, and changes
// nothing.
func TestNewerEvents(t *testing.T) {
	r := newerRig(t)
	r.up(r.qp)
	require.Equal(t, 1, fakeverbs.InjectAsync(fakeverbs.Fake0, 99, 1))
	require.Equal(t, 1, fakeverbs.InjectAsync(fakeverbs.Fake0, uint32(verbs.EventPortActive), 1))
	for _, want := range []verbs.AsyncEvent{{Type: 99}, {Type: verbs.EventPortActive, Port: 1}} {
		ev, err := r.ctx.WaitEvent(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, ev)
	}
	require.Equal(t, "EventType(99)", verbs.EventType(99).String())
	require.Equal(t, verbs.QPStateRTS, r.qp.State())
}

// TestNewerGIDs: a row of a kind that has no name is listed, and chosen only where there is no
// better one.
func TestNewerGIDs(t *testing.T) {
	r := newerRig(t)
	rows := fakeverbs.GIDs(fakeverbs.Fake0)
	v4 := netip.MustParseAddr("192.0.2.1")
	strange := fakeverbs.GID{GID: rows[3].GID, Port: 1, Index: 7, Type: 9, IfIndex: rows[3].IfIndex}
	fakeverbs.SetGIDs(fakeverbs.Fake0, append([]fakeverbs.GID{strange}, rows...))
	all, err := r.ctx.GIDs(1)
	require.NoError(t, err)
	require.Len(t, all, len(rows)+1)
	best, err := r.ctx.ChooseGID(1, v4)
	require.NoError(t, err)
	require.Equal(t, verbs.GIDTypeRoCEv2, best.Type)
	fakeverbs.SetGIDs(fakeverbs.Fake0, []fakeverbs.GID{strange})
	best, err = r.ctx.ChooseGID(1, v4)
	require.NoError(t, err)
	require.EqualValues(t, 9, best.Type)
}
