// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// gidDevice is a device with nothing but a GID table.
type gidDevice struct {
	verbs.ProviderContext // not called
	rows                  []verbs.GIDEntry
}

func (d *gidDevice) Info() verbs.DeviceInfo { return verbs.DeviceInfo{Name: "gid0", Provider: "test"} }
func (d *gidDevice) Open(*verbs.Context) (verbs.ProviderContext, error) {
	return d, nil
}
func (d *gidDevice) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPortCnt: 1}, nil
}
func (d *gidDevice) QueryPort(int) (verbs.PortAttr, error) {
	return verbs.PortAttr{GIDTblLen: len(d.rows), PKeyTblLen: 1}, nil
}
func (d *gidDevice) Ops() verbs.OpSet { return 0 }
func (d *gidDevice) Close() error     { return nil }
func (d *gidDevice) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	<-ctx.Done()
	return verbs.AsyncEvent{}, ctx.Err()
}

func (d *gidDevice) QueryGID(port, index int) (verbs.GIDEntry, error) {
	e := d.rows[index]
	if e.GID.IsZero() {
		return e, verbs.ErrNoGID
	}
	e.Port, e.Index = port, index
	return e, nil
}

func (d *gidDevice) QueryPKey(int, int) (uint16, error) { return 0xffff, nil }

func openGIDs(t *testing.T, rows ...verbs.GIDEntry) *verbs.Context {
	t.Helper()
	ctx, err := verbs.NewDevice(&gidDevice{rows: rows}).Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ctx.Close()) })
	return ctx
}

func gidRow(addr string, typ verbs.GIDType) verbs.GIDEntry {
	return verbs.GIDEntry{GID: verbs.GIDFromAddr(netip.MustParseAddr(addr)), Type: typ, NetDev: "e0"}
}

func TestGIDText(t *testing.T) {
	g := verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.1"))
	require.Equal(t, "10.0.0.1", g.Addr().String())
	require.Equal(t, "0000:0000:0000:0000:0000:ffff:0a00:0001", g.String())
	g = verbs.GIDFromAddr(netip.MustParseAddr("fe80::1"))
	require.Equal(t, "fe80::1", g.Addr().String())
	require.Equal(t, "fe80:0000:0000:0000:0000:0000:0000:0001", g.String())
	require.True(t, verbs.GID{}.IsZero())
	require.False(t, g.IsZero())
	require.Equal(t, "RoCE v2", verbs.GIDTypeRoCEv2.String())
}

// TestChooseGID follows the order of a RoCE port's table as Linux fills it: each address once as v1
// and once as v2.
func TestChooseGID(t *testing.T) {
	const v1, v2 = verbs.GIDTypeRoCEv1, verbs.GIDTypeRoCEv2
	ctx := openGIDs(t, gidRow("fe80::1", v1), gidRow("fe80::1", v2), gidRow("10.0.0.1", v1), gidRow("10.0.0.1", v2),
		verbs.GIDEntry{}, gidRow("10.0.0.2", v2), gidRow("2001:db8::1", v1), gidRow("2001:db8::1", v2))
	for to, index := range map[string]int{
		"10.0.0.9":           3, // the first v2 of the family
		"10.0.0.2":           5, // the address itself
		"::ffff:10.0.0.9":    3, // a mapped address is an IPv4 address
		"2001:db8::2":        7, // global before link local
		"fe80::9%e0":         1, // link local before global
		"fe80::1%e0":         1,
		"2001:db8::1":        7,
		"169.254.0.1":        3, // the other scope rather than none
		"2001:db8:ffff::abc": 7,
	} {
		e, err := ctx.ChooseGID(1, netip.MustParseAddr(to))
		require.NoError(t, err, to)
		require.Equal(t, index, e.Index, to)
		require.Equal(t, 1, e.Port)
	}
	e, err := ctx.ChooseGID(1, netip.Addr{})
	require.NoError(t, err)
	require.Equal(t, 3, e.Index)

	entries, err := ctx.GIDs(1)
	require.NoError(t, err)
	require.Len(t, entries, 7)
}

func TestChooseGIDWithout(t *testing.T) {
	ctx := openGIDs(t, gidRow("fe80::1", verbs.GIDTypeRoCEv2), verbs.GIDEntry{})
	_, err := ctx.ChooseGID(1, netip.MustParseAddr("10.0.0.1"))
	require.ErrorIs(t, err, verbs.ErrNoGID)
	require.ErrorContains(t, err, "10.0.0.1")
	_, err = ctx.ChooseGID(2, netip.Addr{})
	require.ErrorIs(t, err, verbs.ErrInvalid)
	for _, index := range []int{1, 2, -1} {
		_, err = ctx.QueryGID(1, index)
		require.ErrorIs(t, err, verbs.ErrNoGID)
	}
	_, err = ctx.QueryPKey(1, 1)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	key, err := ctx.QueryPKey(1, 0)
	require.NoError(t, err)
	require.Equal(t, uint16(0xffff), key)

	// InfiniBand's GIDs are no IP addresses: any address may be reached from them.
	ib := openGIDs(t, gidRow("fe80::2", verbs.GIDTypeIB))
	e, err := ib.ChooseGID(1, netip.MustParseAddr("10.0.0.1"))
	require.NoError(t, err)
	require.Equal(t, 0, e.Index)
}
