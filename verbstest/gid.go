// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"
	"net"
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var gidTests = []test{
	{"Table", gidTable},
	{"Invalid", gidInvalid},
	{"Choose", gidChoose},
	{"ChooseNone", gidChooseNone},
	{"PKey", gidPKey},
	{"Closed", gidClosed},
}

// gids returns the GIDs of the active side's port. It returns none if the device lacks a GID table;
// queries must then be refused.
func (w *world) gids() []verbs.GIDEntry {
	w.Helper()
	rows, err := w.a.ctx.GIDs(1)
	if w.unless("gid-table", err) {
		for _, call := range []func() error{
			func() error { _, err := w.a.ctx.QueryGID(1, 0); return err },
			func() error { _, err := w.a.ctx.ChooseGID(1, netip.Addr{}); return err },
		} {
			w.lacking("gid-table", call())
		}
		return nil
	}
	require.NotEmpty(w, rows)
	return rows
}

// roce reports whether the fabric is RoCE.
func (w *world) roce() bool {
	w.Helper()
	attr, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	return !w.iwarp() && attr.LinkLayer == verbs.LinkLayerEthernet
}

func gidTable(w *world) outcome {
	attr, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	rows := w.gids()
	seen := make(map[int]bool)
	for _, row := range rows {
		require.Equal(w, 1, row.Port)
		require.False(w, row.GID.IsZero())
		require.False(w, seen[row.Index], "index %d is told twice", row.Index)
		seen[row.Index] = true
		require.Less(w, row.Index, attr.GIDTblLen)
		again, err := w.a.ctx.QueryGID(1, row.Index)
		require.NoError(w, err)
		require.Equal(w, row, again)
		if w.roce() {
			require.Contains(w, []verbs.GIDType{verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2}, row.Type)
			_, err := net.InterfaceByName(row.NetDev)
			require.NoError(w, err, "the network interface %q", row.NetDev)
		} else {
			require.Equal(w, verbs.GIDTypeIB.String(), row.Type.String())
		}
	}
	if rows == nil {
		return noted
	}
	for i := range attr.GIDTblLen {
		if !seen[i] {
			_, err := w.a.ctx.QueryGID(1, i)
			requireErr(w.T, err, verbs.ErrNoGID)
		}
	}
	return tested
}

func gidInvalid(w *world) outcome {
	if w.gids() == nil {
		return noted
	}
	attr, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	for _, index := range []int{-1, attr.GIDTblLen, math.MaxInt, math.MinInt} {
		_, err := w.a.ctx.QueryGID(1, index)
		requireErr(w.T, err, verbs.ErrNoGID)
	}
	for _, port := range []int{0, -1, w.a.attr.PhysPortCnt + 1} {
		_, err := w.a.ctx.QueryGID(port, 0)
		requireErr(w.T, err, verbs.ErrInvalid)
		_, err = w.a.ctx.GIDs(port)
		requireErr(w.T, err, verbs.ErrInvalid)
		_, err = w.a.ctx.ChooseGID(port, w.a.listen)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	return tested
}

// gidChoose: among the rows that can reach an address, the RoCE v2 row of the same address family
// is chosen.
func gidChoose(w *world) outcome {
	rows := w.gids()
	if rows == nil {
		return noted
	}
	for _, to := range []netip.Addr{w.a.listen, netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"),
		netip.MustParseAddr("fe80::1"), {}} {
		row, err := w.a.ctx.ChooseGID(1, to)
		fits := 0
		for _, r := range rows {
			if !w.roce() || !to.IsValid() || r.GID.Addr().Is4() == to.Is4() {
				fits++
			}
		}
		if fits == 0 && err != nil {
			requireErr(w.T, err, verbs.ErrNoGID)
			continue
		}
		require.NoError(w, err)
		require.Contains(w, rows, row)
		if !w.roce() {
			continue
		}
		require.Equal(w, verbs.GIDTypeRoCEv2.String(), row.Type.String())
		if to.IsValid() && fits > 0 {
			require.Equal(w, to.Is4(), row.GID.Addr().Is4())
		}
	}
	if w.roce() && w.f.Active == w.f.Passive {
		row, err := w.a.ctx.ChooseGID(1, w.a.listen)
		require.NoError(w, err)
		require.Equal(w, w.a.listen, row.GID.Addr())
		require.Equal(w, verbs.GIDFromAddr(w.a.listen), row.GID)
	}
	return tested
}

// gidChooseNone: the error names the address.
func gidChooseNone(w *world) outcome {
	_, err := w.a.ctx.ChooseGID(w.a.attr.PhysPortCnt+1, w.a.listen)
	if w.unlessRefused("gid-table", err) {
		return noted
	}
	requireErr(w.T, err, verbs.ErrInvalid)
	return tested
}

func gidPKey(w *world) outcome {
	attr, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	if w.gids() == nil {
		_, err := w.a.ctx.QueryPKey(1, 0)
		w.lacking("pkey-table", err)
		return noted
	}
	for i := range attr.PKeyTblLen {
		key, err := w.a.ctx.QueryPKey(1, i)
		require.NoError(w, err)
		if i == 0 {
			require.EqualValues(w, 0x7fff, key&0x7fff, "the default partition")
		}
	}
	for _, index := range []int{-1, attr.PKeyTblLen, math.MaxInt} {
		_, err := w.a.ctx.QueryPKey(1, index)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	_, err = w.a.ctx.QueryPKey(0, 0)
	requireErr(w.T, err, verbs.ErrInvalid)
	return tested
}

func gidClosed(w *world) outcome {
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	require.NoError(w, c.Close())
	_, err = c.QueryGID(1, 0)
	requireClosed(w.T, err)
	_, err = c.GIDs(1)
	requireClosed(w.T, err)
	_, err = c.ChooseGID(1, netip.Addr{})
	requireClosed(w.T, err)
	_, err = c.QueryPKey(1, 0)
	requireClosed(w.T, err)
	return tested
}
