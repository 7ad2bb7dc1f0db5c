// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// fpduVectors are whole FPDUs without markers.
var fpduVectors = []struct{ name, hex string }{
	{"Send, hello", "001741430000000000000000000000010000000068656c6c6f000000b990b10c"},
	{"Send with SE, empty", "00124145000000000000000000000002000000009f746d49"},
	{"Write", "0016c14000abcd0100000000000010000001020304050607404b5e3b"},
	{"Write, empty", "000ec140000000010000000000000000ebd34c5f"},
	{"Read Request", "002e41410000000000000001000000010000000000000051000000000005200000000020000000530000000000054000135f1a96"},
	{"Immediate Data", "001a4148000000000000000000000001000000001122334455667788fa7ee097"},
	{"Immediate Data with SE", "001a4149000000000000000000000002000000001122334455667788c8fda2e8"},
	{"FetchAdd", "0046414a00000000000000010000000100000000000000000000001100abcd0000007f0000001000000000000000000500000000000000000000000000000000ffffffffffffffff347751a3"},
	{"CmpSwap", "0046414a00000000000000010000000200000000000000020000001200abcd0000007f00000010080000000000000009ffffffffffffffff0000000000000005ffffffffffffffffe7893c15"},
	{"Atomic Response", "001e414b000000000000000300000001000000000000001100000000000000293460faae"},
	{"Terminate", "0016414700000000000000020000000100000000020600006f77b973"},
	{"Terminate with a DDP header",
		"002a4147000000000000000200000001000000000207c0000046414a000000000000000100000004000000009a790102"},
}

// frameFPDU builds an FPDU without markers.
func frameFPDU(ulpdu []byte, crc bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	b = append(b, make([]byte, Pad(len(ulpdu))+CRCLen)...)
	if n := len(b) - CRCLen; crc {
		PutCRC(b[n:], CRC(0, b[:n]))
	}
	return b
}

func TestFPDUVectors(t *testing.T) {
	for _, v := range fpduVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			n := int(binary.BigEndian.Uint16(want))
			require.Len(t, want, FPDULen(n))
			require.Equal(t, want, frameFPDU(want[LengthLen:LengthLen+n], true))
			require.True(t, CheckMarked(want))
		})
	}
}

func TestFPDULen(t *testing.T) {
	for _, tc := range []struct {
		name       string
		ulpdu, len int
	}{
		{"tagged header", 14, 20},
		{"untagged header", 18, 24},
		{"Terminate", 22, 28},
		{"Terminate, untagged header", 42, 48},
		{"Terminate, Read Request", 70, 76},
		{"Terminate, tagged header", 38, 44},
		{"Immediate Data", 26, 32},
		{"Atomic Response", 30, 36},
		{"Read Request", 46, 52},
		{"Atomic Request", 70, 76},
		{"empty", 0, 8},
		{"largest", MaxULPDU, 65544},
	} {
		require.Equal(t, tc.len, FPDULen(tc.ulpdu), tc.name)
	}
}

func TestPad(t *testing.T) {
	for i, want := range []int{2, 1, 0, 3, 2, 1, 0, 3} {
		require.Equal(t, want, Pad(i), "ULPDU of %d bytes", i)
	}
	for n := range MaxULPDU + 1 {
		require.Less(t, uint(Pad(n)), uint(4))
		require.Zero(t, FPDULen(n)%4)
	}
}

func TestMULPDU(t *testing.T) {
	for _, tc := range []struct{ emss, plain, marked int }{
		{1448, 1442, 1430},
		{1460, 1454, 1442},
		{8948, 8942, 8870},
		{1449, 1442, 1430},
		{512, 506, 502},
		{513, 506, 498},
		{0, MinMULPDU, MinMULPDU},
		{-1, MinMULPDU, MinMULPDU},
		{88, MinMULPDU, MinMULPDU},
		{136, 130, MinMULPDU},
		{65000, MaxMULPDU, 64486},
		{1 << 20, MaxMULPDU, MaxMULPDU},
	} {
		require.Equal(t, tc.plain, MULPDU(tc.emss, false), "EMSS %d", tc.emss)
		require.Equal(t, tc.marked, MULPDU(tc.emss, true), "EMSS %d with markers", tc.emss)
	}
}

// An FPDU with the largest ULPDU fits into the segment wherever its markers fall.
func TestMULPDUFits(t *testing.T) {
	for emss := 256; emss < 9100; emss += 7 {
		require.LessOrEqual(t, FPDULen(MULPDU(emss, false)), emss)
		n := FPDULen(MULPDU(emss, true))
		for pos := uint64(0); pos < MarkerSpacing; pos += 4 {
			require.LessOrEqual(t, MarkedLen(pos, n), emss, "EMSS %d, offset %d", emss, pos)
		}
	}
}
