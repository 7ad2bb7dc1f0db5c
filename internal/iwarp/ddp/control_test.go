// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestControl(t *testing.T) {
	for c := range 256 {
		b := byte(c)
		require.Equal(t, b >= 0x80, IsTagged(b))
		require.Equal(t, b&3, VersionOf(b))

		// The parsers ignore reserved bits and the version.
		wire := putTagged(Tagged{STag: 7})
		wire[0] = b
		tagged, err := ParseTagged(wire)
		require.NoError(t, err)
		require.Equal(t, Tagged{Last: b&0x40 != 0, STag: 7}, tagged)
		wire = putUntagged(Untagged{MO: 7})
		wire[0] = b
		untagged, err := ParseUntagged(wire)
		require.NoError(t, err)
		require.Equal(t, Untagged{Last: b&0x40 != 0, MO: 7}, untagged)
	}
}

// receivable clears the bits of the control byte that a receiver does not find in the header, and
// sets those that Put would set.
func receivable(b []byte, tagged bool) []byte {
	b = append([]byte(nil), b...)
	b[0] = b[0]&controlLast | Version
	if tagged {
		b[0] |= controlTagged
	}
	return b
}

// Put overwrites old contents and changes nothing after the header.
func TestPutIntoUsedBuffer(t *testing.T) {
	b := unhex(t, "ffffffffffffffffffffffffffffffffffffffff")
	Tagged{}.Put(b)
	require.Equal(t, unhex(t, "8100000000000000000000000000ffffffffffff"), b)
	b = unhex(t, "ffffffffffffffffffffffffffffffffffffffff")
	Untagged{}.Put(b)
	require.Equal(t, unhex(t, "010000000000000000000000000000000000ffff"), b)
}
