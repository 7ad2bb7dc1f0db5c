// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSetups: an address whose set-ups do not come to an end keeps only itself waiting.
func TestSetups(t *testing.T) {
	s := newSetups()
	slow, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	passed, cancel := context.WithCancel(t.Context())
	cancel()
	var dones []func()
	begin := func(from netip.Addr) {
		require.True(t, s.enter(from))
		done, err := s.begin(t.Context(), from)
		require.NoError(t, err)
		dones = append(dones, done)
	}
	for range mostSetupsOf {
		begin(slow)
	}
	for range mostWaitingOf - mostSetupsOf {
		require.True(t, s.enter(slow))
		_, err := s.begin(passed, slow)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.False(t, s.enter(slow))
	begin(other)
	dones[0]()
	s.leave(slow)
	begin(slow)

	// All addresses together have mostSetups.
	for i := len(s.places); i < mostSetups; i++ {
		begin(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}))
	}
	require.True(t, s.enter(other))
	_, err := s.begin(passed, other)
	require.ErrorIs(t, err, context.Canceled)
	dones[1]()
	_, err = s.begin(t.Context(), other)
	require.NoError(t, err)
	require.Len(t, s.of[other].places, 2, "the attempt that ended has given its place back")

	for range mostWaitingOf {
		s.leave(slow)
	}
	require.NotContains(t, s.of, slow)
}
