// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// header6 is a Global Routing Header.
func header6(from, to string, class uint8, flow uint32, next, hops uint8) []byte {
	b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(class)<<20|flow)
	b = append(b, 0, 64, next, hops)
	src, dst := GIDFromAddr(netip.MustParseAddr(from)), GIDFromAddr(netip.MustParseAddr(to))
	return append(append(b, src[:]...), dst[:]...)
}

// header4 is an IPv4 header with its checksum, behind 20 bytes of anything.
func header4(before byte, from, to string, tos, ttl uint8) []byte {
	b := make([]byte, GRHLen)
	for i := range 20 {
		b[i] = before
	}
	ip := b[20:]
	ip[0], ip[1], ip[8], ip[9] = 0x45, tos, ttl, 17
	src, dst := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return b
}

func TestParseGRH(t *testing.T) {
	gid := func(s string) GID { return GIDFromAddr(netip.MustParseAddr(s)) }
	for name, c := range map[string]struct {
		b    []byte
		want grh
	}{
		"InfiniBand": {header6("fe80::1", "fe80::2", 0xab, 0xcdef1, 0x1b, 63),
			grh{gid("fe80::1"), gid("fe80::2"), 0xcdef1, 63, 0xab, false}},
		"RoCEv2IPv6": {header6("2001:db8::1", "2001:db8::2", 1, 2, 17, 64),
			grh{gid("2001:db8::1"), gid("2001:db8::2"), 2, 64, 1, true}},
		"RoCEv2IPv4": {header4(0, "192.0.2.1", "192.0.2.2", 8, 60),
			grh{gid("192.0.2.1"), gid("192.0.2.2"), 0, 60, 8, true}},
		// The bytes before an IPv4 header may look like version 6; its checksum tells.
		"LooksLike6": {header4(0x66, "192.0.2.1", "192.0.2.2", 8, 60),
			grh{gid("192.0.2.1"), gid("192.0.2.2"), 0x66666, 60, 8, true}},
		// The end of an IPv6 header may look like the beginning of an IPv4 header, without its
		// checksum.
		"LooksLike4": {header6("2001:db8:0:0:0:4500::1", "2001:db8::2", 1, 2, 17, 64),
			grh{gid("2001:db8:0:0:0:4500::1"), gid("2001:db8::2"), 2, 64, 1, true}},
	} {
		got, err := parseGRH(c.b)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for name, c := range map[string]struct {
		b    []byte
		text string
	}{
		"Version":  {make([]byte, GRHLen), "IP versions 0 and 0"},
		"Next":     {header6("fe80::1", "fe80::2", 0, 0, 6, 63), "next header 0x6"},
		"Group":    {header6("fe80::1", "ff0e::2", 0, 0, 0x1b, 63), "group ff0e::2"},
		"GroupIP4": {header4(0, "192.0.2.1", "224.0.0.5", 0, 1), "group 224.0.0.5"},
	} {
		_, err := parseGRH(c.b)
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, c.text, name)
	}
}
