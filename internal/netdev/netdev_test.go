// SPDX-License-Identifier: BSD-3-Clause

package netdev

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// loopback returns the name of the loopback interface.
func loopback(t *testing.T) string {
	t.Helper()
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 && i.Flags&net.FlagUp != 0 {
			return i.Name
		}
	}
	require.FailNow(t, "no loopback interface")
	return ""
}

func TestAddresses(t *testing.T) {
	lo := loopback(t)
	home := netip.MustParseAddr("127.0.0.1")
	require.Contains(t, Addresses(lo), home)
	require.Empty(t, Addresses("none0"))
	all, err := All()
	require.NoError(t, err)
	require.Contains(t, all, Address{home, lo})
	for _, a := range all {
		require.Empty(t, a.IP.Zone())
		require.False(t, a.IP.Is4In6())
	}
}

// TestOfGID: the interface that the kernel names wins; if it names none for an iWARP device, the
// MAC address decides.
func TestOfGID(t *testing.T) {
	require.Equal(t, "e0", OfGID(verbs.TransportIB, verbs.GIDEntry{NetDev: "e0"}))
	require.Equal(t, "e0", OfGID(verbs.TransportIWARP, verbs.GIDEntry{NetDev: "e0"}))
	unknown := verbs.GIDEntry{GID: verbs.GID{2, 0xff, 0xee, 0xdd, 0xcc, 0xbb}}
	require.Empty(t, OfGID(verbs.TransportIWARP, unknown))
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		var g verbs.GIDEntry
		if copy(g.GID[:], i.HardwareAddr) == 6 && i.Flags&net.FlagLoopback == 0 {
			require.NotEmpty(t, OfGID(verbs.TransportIWARP, g))
			require.Empty(t, OfGID(verbs.TransportIB, g))
		}
	}
}
