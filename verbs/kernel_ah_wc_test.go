// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestCreateAHFromWC: the answer to a datagram goes to its sender, from the address to which it was
// sent.
func TestCreateAHFromWC(t *testing.T) {
	r := newRig(t, "fake0")
	to := [16]byte{0: 0xfe, 1: 0x80, 15: 2}
	fakeverbs.SetGIDs(fakeverbs.Fake0,
		[]fakeverbs.GID{{GID: [16]byte{15: 9}, Port: 1, Index: 0, Type: 2}, {GID: to, Port: 1, Index: 1, Type: 1},
			{GID: to, Port: 1, Index: 4, Type: 2}})
	grh := make([]byte, verbs.GRHLen)
	grh[0], grh[1], grh[3], grh[6], grh[7] = 0x60|0xa, 0xb0|0xc, 0xde, 17, 33
	grh[8], grh[23] = 0x20, 7
	copy(grh[24:], to[:])
	wc := verbs.WC{Opcode: verbs.WCRecv, Flags: verbs.WCGRH, SLID: 5, SL: 3, DLIDPathBits: 2}
	_, err := r.pd.CreateAHFromWC(&wc, grh, 1)
	require.NoError(t, err)
	got, ok := fakeverbs.AHByID(fakeverbs.LastID("AH"))
	require.True(t, ok)
	require.Equal(t, fakeverbs.AHAttr{DGID: [16]byte{0: 0x20, 15: 7}, FlowLabel: 0xc00de, SGIDIndex: 4, HopLimit: 33,
		TrafficClass: 0xab, DLID: 5, SL: 3, SrcPathBits: 2, IsGlobal: true, Port: 1}, got)
	grh[6] = 0x1b // RoCE v1
	attr, err := r.ctx.AHAttrFromWC(&wc, grh, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, attr.GRH.SGIDIndex)

	local := wc
	local.Flags = 0
	attr, err = r.ctx.AHAttrFromWC(&local, nil, 1)
	require.NoError(t, err)
	require.Equal(t, verbs.AHAttr{DLID: 5, SL: 3, SrcPathBits: 2, PortNum: 1}, attr,
		"without the header it is not looked at")

	other := append([]byte(nil), grh...)
	other[39] = 8
	failed := wc
	failed.Status = verbs.WCWRFlushErr
	sent := wc
	sent.Opcode = verbs.WCSend
	for name, c := range map[string]struct {
		wc    *verbs.WC
		grh   []byte
		port  int
		cause error
	}{
		"NoWC":    {nil, grh, 1, verbs.ErrInvalid},
		"Failed":  {&failed, grh, 1, verbs.ErrInvalid},
		"Sent":    {&sent, grh, 1, verbs.ErrInvalid},
		"Short":   {&wc, grh[:39], 1, verbs.ErrInvalid},
		"Port":    {&wc, grh, 2, verbs.ErrInvalid},
		"Port0":   {&wc, grh, 0, verbs.ErrInvalid},
		"Foreign": {&wc, other, 1, verbs.ErrNoGID},
	} {
		_, err := r.pd.CreateAHFromWC(c.wc, c.grh, c.port)
		require.ErrorIs(t, err, c.cause, name)
		require.ErrorContains(t, err, "CreateAHFromWC", name)
	}
}
