// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestVanish: a region whose memory is gone is invalidated along with all its windows, even if the
// access went through one of them. No access remains in progress.
func TestVanish(t *testing.T) {
	for _, byWindow := range []bool{false, true} {
		mr := &region{}
		a, b := &region{parent: mr}, &region{parent: mr}
		used := mr
		if byWindow {
			used = a
		}
		require.True(t, used.enter())
		require.Equal(t, accepted, used.used(true))
		require.True(t, used.enter())
		require.Equal(t, rejectSTag, used.used(false))
		for _, r := range []*region{mr, a, b} {
			require.False(t, r.enter())
			r.guard.Shut()
			require.True(t, r.guard.Drain(10*time.Second))
		}
	}
}
