// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSources: silent streams, however many, from loopback addresses or from one address take no
// slots from others. A new stream always has a slot: the oldest of its competitors makes way.
func TestSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		var s sources
		var ended []int
		number := 0
		listen := func(at netip.Addr) func() bool {
			from, _, _ := s.enter(at)
			number++
			n := number
			this := s.listen(from, limit, func() { ended = append(ended, n) })
			return func() bool { return s.hear(from, this) }
		}
		local := sourceOf(&net.TCPAddr{IP: net.IPv6loopback})
		first := listen(local)
		for range maxSilent - 1 {
			listen(local)
		}
		require.Empty(t, ended)
		second := listen(sourceOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}))
		require.Equal(t, []int{1}, ended)
		require.False(t, first())
		require.True(t, second())
		require.False(t, second(), "it has been heard")
		listen(sourceOf(&net.UnixAddr{}))
		require.Len(t, ended, 1, "it has left its place")
		listen(local)
		require.Equal(t, []int{1, 2}, ended, "all loopback addresses together have maxSilent")

		// An address may open more than limit at once, but later keeps only limit.
		ended, number = nil, 0
		one := sourceOf(&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1")})
		require.Equal(t, sourceOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}), one)
		for range 2 * limit {
			listen(one)
		}
		time.Sleep(silentGrace)
		listen(one)
		require.Empty(t, ended)
		time.Sleep(1)
		last := listen(one)
		require.Equal(t, []int{1, 2, 3, 4, 5}, ended)
		time.Sleep(time.Hour)
		listen(netip.MustParseAddr("192.0.2.2"))
		require.Len(t, ended, 5, "another address takes nothing from it")

		// All addresses together have maxSilent. The address with the most makes way.
		ended = nil
		for i := s.silent[1]; i < maxSilent; i++ {
			listen(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
		}
		require.Empty(t, ended)
		other := netip.AddrFrom4([4]byte{203, 0, 113, 1})
		listen(other)
		require.Equal(t, []int{6}, ended)
		require.True(t, last())
		listen(other)
		require.Len(t, ended, 1)
		before := len(ended)
		listen(local) // closes its own oldest stream
		require.Len(t, ended, before+1)
		require.Equal(t, [2]int{maxSilent, maxSilent}, s.silent, "loopback addresses take no place of others")
	})
}

// TestSourcesInOrder: a stream waits only for streams from its own address.
func TestSourcesInOrder(t *testing.T) {
	var s sources
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	from, earlier, first := s.enter(one)
	require.Nil(t, earlier)
	_, earlier, _ = s.enter(other)
	require.Nil(t, earlier)
	_, earlier, second := s.enter(one)
	require.Equal(t, first, earlier)
	s.leave(from, first)
	s.leave(from, second)
	require.NotContains(t, s.of, one)
	_, earlier, _ = s.enter(one)
	require.Nil(t, earlier, "it has been queued")
}
