// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestYielder reuses descriptors, creates no more than a bounded number, and closes all of them,
// even one that is in use at the end.
func TestYielder(t *testing.T) {
	var y yielder
	y.yield()
	y.close() // from here on the runtime's descriptors are open

	y = yielder{}
	before := descriptors(t)
	for range 3 {
		y.yield()
		require.Len(t, descriptors(t), len(before)+1)
	}
	first := y.take()
	require.NotNil(t, first)
	inUse := first
	for range maxYieldFDs - 1 {
		inUse = y.take()
		require.NotNil(t, inUse)
		require.NotSame(t, first, inUse)
		defer inUse.file.Close()
	}
	require.Nil(t, y.take())
	y.yield() // without one
	require.Len(t, descriptors(t), len(before)+maxYieldFDs)
	y.give(first)
	require.Same(t, first, y.take())
	y.give(first)
	y.close()
	require.Len(t, descriptors(t), len(before)+maxYieldFDs-1)
	y.give(inUse)
	require.Len(t, descriptors(t), len(before)+maxYieldFDs-2)
	require.Nil(t, y.take())
	y.yield()
}
