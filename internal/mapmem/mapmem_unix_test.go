// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package mapmem

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// faults reports whether reading b[0] is a memory fault.
func faults(b []byte) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	sink = b[0]
	return false
}

var sink byte

// TestClosedMemoryFaults is why regions stay mapped for a while: a late access must not read
// somebody else's data.
func TestClosedMemoryFaults(t *testing.T) {
	for _, huge := range []bool{false, true} {
		mem, err := Map(10000, huge)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(mem), 10000)
		require.Equal(t, make([]byte, 10000), mem[:10000], "zeroed")
		require.Zero(t, Address(mem)%4096, "page-aligned")
		require.False(t, faults(mem))
		Unmap(mem)
		require.True(t, faults(mem))
	}
}

// TestQuarantineIsBounded closes more regions than are kept.
func TestQuarantineIsBounded(t *testing.T) {
	for range quarantineRanges + 10 {
		mem, err := Map(1, false)
		require.NoError(t, err)
		Unmap(mem)
	}
	quarantine.Lock()
	defer quarantine.Unlock()
	require.Len(t, quarantine.ranges, quarantineRanges)
	require.LessOrEqual(t, quarantine.bytes, quarantineBytes)
}
