// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FPDUs from RFC 5044 section 4.4: the first of a stream, with the marker before it, and the
// second, which begins at offset 0x1ec and contains a marker.
const (
	figure5 = "00000000 002a 4143 00000000 00000000 00000001 00000000" +
		"000000000000000000000000000000000000000000000000 52239983"
	figure6 = "002a 4143 00000000 00000000 00000002 00000000 00000014" +
		"000000000000000000000000000000000000000000000000 84925898"
	figure6Pos = 0x1ec
)

func TestCRC(t *testing.T) {
	fig5, fig6 := unhex(t, figure5), unhex(t, figure6)
	for _, tc := range []struct {
		name string
		data []byte
		wire string
	}{
		{"empty", nil, "00000000"},
		{"32 zero bytes", make([]byte, 32), "aa36918a"},
		{"RFC 5044 figure 5", fig5[:len(fig5)-CRCLen], "52239983"},
		{"RFC 5044 figure 6", fig6[:len(fig6)-CRCLen], "84925898"},
		{"RFC 5044 figure 5 without its marker", fig5[MarkerLen : len(fig5)-CRCLen], "b7243ec3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := unhex(t, tc.wire)
			crc := CRC(0, tc.data)
			got := make([]byte, CRCLen)
			PutCRC(got, crc)
			require.Equal(t, want, got)
			require.Equal(t, crc, GetCRC(want))
			for i := range tc.data {
				require.Equal(t, crc, CRC(CRC(0, tc.data[:i]), tc.data[i:]), "in two parts, divided at %d", i)
			}
		})
	}
}

func TestPutCRCShort(t *testing.T) {
	for n := range CRCLen {
		require.Panics(t, func() { PutCRC(make([]byte, n), 1) })
		require.Panics(t, func() { GetCRC(make([]byte, n)) })
	}
}
