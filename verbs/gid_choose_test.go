// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChooseGIDReports: hosts on which other software took a row from which the peer could not be
// reached, as their users reported it. Before each table stands what was wrong.
func TestChooseGIDReports(t *testing.T) {
	const v1, v2 = GIDTypeRoCEv1, GIDTypeRoCEv2
	row := func(index int, addr string, typ GIDType, dev string) GIDEntry {
		return GIDEntry{GID: GIDFromAddr(netip.MustParseAddr(addr)), Port: 1, Index: index, Type: typ, NetDev: dev}
	}
	via := func(source, dev string, subnets ...string) hostRoute {
		h := hostRoute{netDev: dev, subnets: map[string][]netip.Prefix{}}
		if source != "" {
			h.source = netip.MustParseAddr(source)
		}
		for _, s := range subnets {
			h.subnets[dev] = append(h.subnets[dev], netip.MustParsePrefix(s))
		}
		return h
	}
	for _, c := range []struct {
		report string
		rows   []GIDEntry
		host   hostRoute
		to     string
		want   int // -1 = none
	}{
		{"Mooncake 113: the first IPv4 row, of RoCE v1",
			[]GIDEntry{row(0, "fe80::1", v1, "bond0"), row(1, "fe80::1", v2, "bond0"), row(2, "10.0.0.1", v1, "bond0"),
				row(3, "10.0.0.1", v2, "bond0")}, via("10.0.0.1", "bond0", "10.0.0.1/24"), "10.0.0.9", 3},
		{"Mooncake 946: the first IPv4 row, of another network namespace",
			[]GIDEntry{row(3, "26.208.8.250", v2, ""), row(7, "26.208.8.252", v2, "eth1")},
			via("26.208.8.252", "eth1", "26.208.8.252/24"), "26.208.8.7", 7},
		{"the same without a route", []GIDEntry{row(3, "26.208.8.250", v2, ""), row(7, "26.208.8.252", v2, "eth1")},
			hostRoute{}, "26.208.8.7", 7},
		{"Mooncake 1592: no IPv4 row, and gaps",
			[]GIDEntry{row(0, "fe80::2", v1, "ens1"), row(1, "fe80::2", v2, "ens1"), row(9, "fd93::2", v2, "ens1")},
			via("10.1.0.2", "ens1", "10.1.0.2/24"), "10.1.0.9", 9},
		{"Mooncake 2748: link-local, because 10.0.0.0/8 was taken for an overlay",
			[]GIDEntry{row(0, "fe80::690:81ff:fe37:a9e8", v2, "rdma0"),
				row(1, "10.102.9.101", v2, "rdma0")}, via("10.102.9.101", "rdma0", "10.102.9.101/26"), "10.102.200.3",
			1},
		{"uccl 803: row 0, link-local, because none is of IPv4",
			[]GIDEntry{row(0, "fe80::3", v1, "eth4"), row(1, "fe80::3", v2, "eth4"),
				row(2, "fd93:16d3::3", v1, "eth4"), row(3, "fd93:16d3::3", v2, "eth4")},
			via("10.2.0.3", "eth4", "10.2.0.3/16"), "10.2.7.7", 3},
		{"ydb 29878: the RoCE v1 row of the same GID",
			[]GIDEntry{row(0, "2a02::5", v1, "eth0"), row(1, "2a02::5", v2, "eth0")},
			via("2a02::5", "eth0", "2a02::5/64"), "2a02:1::6", 1},
		{"rocSHMEM 215: a fixed row, link-local",
			[]GIDEntry{row(0, "fe80::4", v1, "eth2"), row(1, "fe80::4", v2, "eth2"), row(2, "192.168.4.4", v1, "eth2"),
				row(3, "192.168.4.4", v2, "eth2")}, hostRoute{}, "", 3},
		{"torchcomms 2945: link-local of IPv4",
			[]GIDEntry{row(0, "fe80::6", v2, "beth0"), row(1, "169.254.7.7", v2, "beth0"),
				row(2, "2001:db8::6", v2, "beth0")},
			hostRoute{}, "", 2},
		{"aibrix 1171: an index of another host; the table of a pod begins later",
			[]GIDEntry{row(4, "fe80::a4ed:ccff:fe8b:1994", v1, "net1"),
				row(5, "fe80::a4ed:ccff:fe8b:1994", v2, "net1"), row(6, "10.152.0.12", v1, "net1"),
				row(7, "10.152.0.12", v2, "net1")}, via("10.152.0.12", "net1", "10.152.0.12/22"), "10.152.4.12", 7},

		{"the first of two subnets", []GIDEntry{row(0, "26.208.8.250", v2, "e0"), row(1, "10.9.0.2", v2, "e0")},
			hostRoute{}, "10.9.0.7", 1},
		{"the same with routes", []GIDEntry{row(0, "26.208.8.250", v2, "e0"), row(1, "10.9.0.2", v2, "e0")},
			via("10.9.0.2", "e0", "26.208.8.250/24", "10.9.0.2/24"), "10.9.0.7", 1},
		{"the route decides for the address that is less alike",
			[]GIDEntry{row(0, "10.9.0.6", v2, "e0"), row(1, "10.1.0.2", v2, "e1")},
			via("10.1.0.2", "e1", "10.1.0.2/8"), "10.9.0.7", 1},
		{"the subnet where the route has another device's address",
			[]GIDEntry{row(0, "10.9.0.6", v2, "e0"), row(1, "10.9.128.2", v2, "e1")},
			via("192.168.0.1", "e1", "10.9.128.2/16"), "10.9.0.7", 1},
		{"the source address of two in the subnet",
			[]GIDEntry{row(0, "10.9.0.6", v2, "e0"), row(1, "10.9.0.2", v2, "e0")},
			via("10.9.0.2", "e0", "10.9.0.6/24", "10.9.0.2/24"), "10.9.0.7", 1},
		{"RoCE v1 of the family before RoCE v2 of the other one",
			[]GIDEntry{row(0, "fe80::7", v2, "e0"), row(1, "10.9.0.2", v1, "e0")},
			via("10.9.0.2", "e0", "10.9.0.2/24"), "10.9.0.7", 1},
		{"no address: IPv4", []GIDEntry{row(0, "2001:db8::6", v2, "e0"), row(1, "10.9.0.2", v2, "e0")}, hostRoute{}, "",
			1},
		{"one address on two interfaces",
			[]GIDEntry{row(0, "30.153.10.175", v2, "vxlan"), row(1, "30.153.10.175", v2, "bond1")},
			via("30.153.10.175", "bond1"), "30.153.10.9", 1},
		{"the subnet, if the route goes through another device",
			[]GIDEntry{row(0, "10.9.0.6", v2, "e0"), row(1, "10.9.128.2", v2, "e1")},
			hostRoute{netDev: "e2", subnets: map[string][]netip.Prefix{"e1": {netip.MustParsePrefix("10.9.128.2/16")}}},
			"10.9.0.7", 1},
		{"of two subnets of an interface each is of its own address",
			[]GIDEntry{row(0, "10.9.0.6", v2, "e1"), row(1, "10.9.128.2", v2, "e1")},
			via("", "e1", "10.9.0.6/30", "10.9.128.2/16"), "10.9.0.9", 1},
		{"a kind that is not known", []GIDEntry{row(0, "10.9.0.2", 9, "e0"), row(1, "10.9.0.2", v1, "e0")}, hostRoute{},
			"10.9.0.7", 1}, {"only link-local, an IPv4 peer",
			[]GIDEntry{row(0, "fe80::7", v1, "e0"), row(1, "fe80::7", v2, "e0")}, via("10.9.0.2", "e0", "10.9.0.2/24"),
			"10.9.0.7", 1},
		{"the same on another interface", []GIDEntry{row(1, "fe80::7", v2, "e0")}, via("10.9.0.2", "e1", "10.9.0.2/24"),
			"10.9.0.7", -1}, {"the same of RoCE v1", []GIDEntry{row(0, "fe80::7", v1, "e0")},
			via("10.9.0.2", "e0", "10.9.0.2/24"), "10.9.0.7", -1},
		{"a link-local peer of one of two links", []GIDEntry{row(0, "fe80::7", v2, "e0"), row(1, "fe80::8", v2, "e1")},
			via("", "e1"), "fe80::9%e1", 1},
	} {
		t.Run(c.report, func(t *testing.T) {
			var to netip.Addr
			if c.to != "" {
				to = netip.MustParseAddr(c.to)
			}
			got, ok := chooseGID(c.rows, to, c.host)
			require.Equal(t, c.want >= 0, ok)
			if ok {
				require.Equal(t, c.want, got.Index)
			}
		})
	}
}

// TestRouteTo: what the host itself says of the way to an address.
func TestRouteTo(t *testing.T) {
	h := routeTo(netip.MustParseAddr("127.0.0.1"))
	require.Equal(t, "127.0.0.1", h.source.String())
	require.NotEmpty(t, h.netDev)
	require.Contains(t, h.subnets[h.netDev], netip.MustParsePrefix("127.0.0.1/8"))
	h = routeTo(netip.Addr{})
	require.False(t, h.source.IsValid())
	require.Empty(t, h.netDev)
	require.Equal(t, "e7", routeTo(netip.MustParseAddr("fe80::1%e7")).netDev)
}
