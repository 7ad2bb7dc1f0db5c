// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlugPlan: whatever the size of a page, no CQ of the plan begins at the hole, and the last one lies across it.
func TestPlugPlan(t *testing.T) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		before, across := plugPlan(page)
		at := 0
		for _, cqe := range before {
			at += siwCQLen(cqe, page)
			require.Less(t, at, siwHole)
		}
		require.Greater(t, at+siwCQLen(across, page), siwHole)
		require.Less(t, siwCQLen(across, page), 3*page, "no more than it takes")
	}
}
