// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControl(t *testing.T) {
	for op := Opcode(0); op < 16; op++ {
		b := Control(op)
		require.Equal(t, 0x40|byte(op), b)
		version, got := ParseControl(b)
		require.EqualValues(t, Version, version)
		require.Equal(t, op, got)

		// Reserved bits are ignored.
		version, got = ParseControl(b | 0x30)
		require.EqualValues(t, Version, version)
		require.Equal(t, op, got)
	}
	for version := range uint8(4) {
		got, op := ParseControl(version<<6 | 7)
		require.Equal(t, version, got)
		require.Equal(t, OpTerminate, op)
	}
	require.Equal(t, byte(0x42), Control(0xf2), "an opcode has four bits")
}
