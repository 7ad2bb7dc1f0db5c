// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// TestChooseGIDRank: which rule comes before which, where a table has rows of which each follows
// another one.
func TestChooseGIDRank(t *testing.T) {
	const v1, v2 = verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2
	ctx := openGIDs(t, gidRow("10.0.0.3", v1), gidRow("fe80::1", v2), gidRow("10.0.0.1", v2), gidRow("fe80::2", v2))
	for to, index := range map[string]int{
		"10.0.0.3":   2, // the version before the address
		"fe80::2":    3,
		"fe80::2%e0": 3, // a zone is no part of a GID
		"fe80::1%e0": 1,
	} {
		e, err := ctx.ChooseGID(1, netip.MustParseAddr(to))
		require.NoError(t, err, to)
		require.Equal(t, index, e.Index, to)
	}
	_, err := openGIDs(t).ChooseGID(1, netip.Addr{})
	var op *verbs.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "ChooseGID", op.Op)
	require.Equal(t, "gid0", op.Device)
}

// TestGIDTypeTexts: the names are those of ibv_devinfo.
func TestGIDTypeTexts(t *testing.T) {
	for typ, text := range map[verbs.GIDType]string{verbs.GIDTypeIB: "IB", verbs.GIDTypeRoCEv1: "RoCE v1",
		verbs.GIDTypeRoCEv2: "RoCE v2", 3: "GIDType(3)"} {
		require.Equal(t, text, typ.String())
	}
}

// tableless is a device without a GID table.
type tableless struct{ *gidDevice }

func (d tableless) Open(*verbs.Context) (verbs.ProviderContext, error) {
	return struct{ verbs.ProviderContext }{d.gidDevice}, nil
}

// TestGIDTableFails: what the device does not have, and what it says instead of a row, comes back
// with the call's name.
func TestGIDTableFails(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		dev  verbs.ProviderDevice
		port int
		want error
	}{
		"no table":     {tableless{&gidDevice{}}, 1, verbs.ErrNotSupported},
		"no such port": {&gidDevice{rows: make([]verbs.GIDEntry, 1)}, 2, verbs.ErrInvalid},
		"broken":       {brokenTable{&gidDevice{rows: make([]verbs.GIDEntry, 1)}, broken}, 1, broken},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, err := verbs.NewDevice(c.dev).Open()
			require.NoError(t, err)
			defer func() { require.NoError(t, ctx.Close()) }()
			for op, call := range map[string]func() error{
				"GIDs":      func() error { _, err := ctx.GIDs(c.port); return err },
				"QueryGID":  func() error { _, err := ctx.QueryGID(c.port, 0); return err },
				"QueryPKey": func() error { _, err := ctx.QueryPKey(c.port, 0); return err },
			} {
				err := call()
				require.ErrorIs(t, err, c.want, op)
				require.ErrorContains(t, err, "verbs: "+op+" on gid0: ")
			}
			_, err = ctx.ChooseGID(c.port, netip.Addr{})
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, verbs.ErrNoGID)
		})
	}
}

// brokenTable is a device whose rows cannot be read.
type brokenTable struct {
	*gidDevice
	err error
}

func (d brokenTable) Open(*verbs.Context) (verbs.ProviderContext, error) { return d, nil }
func (d brokenTable) QueryGID(int, int) (verbs.GIDEntry, error)          { return verbs.GIDEntry{}, d.err }
func (d brokenTable) QueryPKey(int, int) (uint16, error)                 { return 0, d.err }
