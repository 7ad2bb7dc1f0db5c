// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSources: silent streams from loopback addresses, however many, and those from one address take no place of others.
func TestSources(t *testing.T) {
	const limit = 3
	var s sources
	local := sourceOf(&net.TCPAddr{IP: net.IPv6loopback})
	require.Equal(t, local, sourceOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}))
	require.Equal(t, local, sourceOf(&net.UnixAddr{}))
	for range maxHandshakes {
		require.True(t, s.take(local, limit))
	}
	require.False(t, s.take(local, limit))
	one := sourceOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)})
	for range limit {
		require.True(t, s.take(one, limit))
	}
	require.False(t, s.take(one, limit))
	for i := limit; i < maxHandshakes; i++ {
		require.True(t, s.take(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), limit))
	}
	other := netip.AddrFrom4([4]byte{203, 0, 113, 1})
	require.False(t, s.take(other, limit))
	s.give(one)
	require.True(t, s.take(other, limit))
	s.give(local)
	require.False(t, s.take(one, limit), "a place of a loopback address is not one of others")
	require.True(t, s.take(local, limit))
}
