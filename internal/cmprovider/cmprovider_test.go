// SPDX-License-Identifier: BSD-3-Clause

package cmprovider_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

// TestDepth: 0 is the device's maximum, cm.None is none, and errors for values out of range name
// the field.
func TestDepth(t *testing.T) {
	for _, c := range []struct{ v, want int }{{0, 128}, {cm.None, 0}, {1, 1}, {128, 128}} {
		got, err := cmprovider.Depth("InitiatorDepth", c.v, 128)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := cmprovider.Depth("InitiatorDepth", 129, 128)
	require.ErrorIs(t, err, verbs.ErrLimit)
	require.EqualError(t, err, "InitiatorDepth: 129 exceeds the limit 128")
	_, err = cmprovider.Depth("ResponderResources", -2, 128)
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "ResponderResources -2")
}
