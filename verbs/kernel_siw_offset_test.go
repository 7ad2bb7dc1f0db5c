// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOffsetPlan: whatever the size of a page, no CQ of the plan begins at the offset that libsiw
// refuses, and the last one lies across it.
func TestOffsetPlan(t *testing.T) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		before, across := offsetPlan(page)
		at := 0
		for _, cqe := range before {
			at += siwCQLen(cqe, page)
			require.Less(t, at, siwRefused)
		}
		require.Greater(t, at+siwCQLen(across, page), siwRefused)
		require.Less(t, siwCQLen(across, page), 3*page, "no more than it takes")
	}
}
