// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// markNaively inserts markers byte by byte, as RFC 5044 section 4.3 describes.
func markNaively(pos uint64, fpdu []byte, crc bool) []byte {
	var (
		out    []byte
		length uint64 // stream offset of ULPDU_Length
	)
	for i, c := range fpdu {
		if at := pos + uint64(len(out)); at%MarkerSpacing == 0 {
			var back uint16
			if i > 0 {
				back = uint16(at - length)
			}
			out = append(out, 0, 0, byte(back>>8), byte(back))
		}
		if i == 0 {
			length = pos + uint64(len(out))
		}
		out = append(out, c)
	}
	tail := out[len(out)-CRCLen:]
	if clear(tail); crc {
		PutCRC(tail, CRC(0, out[:len(out)-CRCLen]))
	}
	return out
}

// randomFPDU returns an FPDU with garbage for a CRC.
func randomFPDU(ulpdu int) []byte {
	r := rand.New(rand.NewPCG(uint64(ulpdu), 5044))
	b := make([]byte, ulpdu)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b = frameFPDU(b, false)
	PutCRC(b[len(b)-CRCLen:], 0xdeadbeef)
	return b
}

func TestMarkedFigures(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		pos       uint64
		prefix    int
		plain     []byte
	}{
		{"figure 5", figure5, 0, MarkerLen,
			unhex(t, "002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983")},
		{"figure 6", figure6, figure6Pos, 0,
			unhex(t, "002a41430000000000000000000000020000000000000000000000000000000000000000000000000000000084925898")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := unhex(t, tc.hex)
			require.Equal(t, tc.prefix, MarkedPrefix(tc.pos))
			require.Equal(t, len(want), MarkedLen(tc.pos, len(tc.plain)))
			require.Equal(t, want, AppendMarked(nil, tc.pos, tc.plain, true))
			require.True(t, CheckMarked(want))
			got, err := StripMarked(nil, want, tc.pos)
			require.NoError(t, err)
			require.Equal(t, tc.plain, got)
		})
	}
}

// The example of RFC 5044 figure 4: a marker 12 bytes after ULPDU_Length.
func TestMarkedFigure4(t *testing.T) {
	fpdu := frameFPDU([]byte("0123456789abcdef"), false)
	raw := AppendMarked(nil, MarkerSpacing-12, fpdu, false)
	require.Equal(t, "\x00\x100123456789\x00\x00\x00\x0cabcdef\x00\x00\x00\x00\x00\x00", string(raw))
}

func TestMarkedEveryPosition(t *testing.T) {
	for _, ulpdu := range []int{0, 1, 2, 14, 42, 70, 480, 490, 494, 498, 502, 506, 510, 1000, 1010, 1014, 1430, 1442,
		4096} {
		fpdu := randomFPDU(ulpdu)
		for pos := uint64(0); pos < 3*MarkerSpacing; pos += 4 {
			for _, crc := range []bool{false, true} {
				want := markNaively(pos, fpdu, crc)
				require.Equal(t, len(want), MarkedLen(pos, len(fpdu)), "ULPDU %d at %d", ulpdu, pos)
				raw := AppendMarked([]byte("dst"), pos, fpdu, crc)
				require.Equal(t, "dst", string(raw[:3]))
				raw = raw[3:]
				require.Equal(t, want, raw, "ULPDU %d at %d", ulpdu, pos)
				require.Equal(t, crc, CheckMarked(raw))

				prefix := MarkedPrefix(pos)
				require.Equal(t, ulpdu, int(binary.BigEndian.Uint16(raw[prefix:])))
				got, err := StripMarked([]byte("dst"), raw, pos)
				require.NoError(t, err)
				require.Equal(t, "dst", string(got[:3]))
				n := len(fpdu) - CRCLen
				require.Equal(t, fpdu[:n], got[3:3+n])
				require.Equal(t, raw[len(raw)-CRCLen:], got[3+n:])

				// In place.
				got, err = StripMarked(raw[:0], raw, pos)
				require.NoError(t, err)
				require.Equal(t, fpdu[:n], got[:n])
			}
		}
		require.Equal(t, uint32(0xdeadbeef), GetCRC(fpdu[len(fpdu)-CRCLen:]), "the FPDU given was changed")
	}
}

// The largest FPDU with markers, and offsets near the end of their range.
func TestMarkedExtremes(t *testing.T) {
	fpdu := randomFPDU(MaxMULPDU)
	for _, pos := range []uint64{0, 4, 508, 1<<32 - 4, 1 << 40, 1<<64 - MarkerSpacing, 1<<64 - 4} {
		raw := AppendMarked(nil, pos, fpdu, true)
		require.Equal(t, markNaively(pos, fpdu, true), raw, "offset %d", pos)
		got, err := StripMarked(nil, raw, pos)
		require.NoError(t, err)
		require.Equal(t, fpdu[:len(fpdu)-CRCLen], got[:len(got)-CRCLen])
	}
}

func TestMarkedLen(t *testing.T) {
	for _, tc := range []struct {
		name      string
		pos       uint64
		fpdu, len int
	}{
		{"nothing", 0, 0, 0},
		{"marker in front", 0, 20, 24},
		{"ends where a marker is due", 492, 20, 20},
		{"marker in front of the last byte", 496, 20, 24},
		{"marker in front of the CRC", 508, 8, 12},
		{"up to the second marker", 0, 508, 512},
		{"beyond the second marker", 0, 512, 520},
		{"RFC 5044 section 4.4, first", 0, 488, 492},
	} {
		require.Equal(t, tc.len, MarkedLen(tc.pos, tc.fpdu), tc.name)
	}
}

// A stream of FPDUs has markers where they are due, and can be split into FPDUs again.
func TestMarkedStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var (
		stream []byte
		fpdus  [][]byte
	)
	for range 200 {
		fpdu := randomFPDU(r.IntN(1500))
		fpdus = append(fpdus, fpdu)
		stream = AppendMarked(stream, uint64(len(stream)), fpdu, true)
	}
	require.Equal(t, []byte{0, 0, 0, 0}, stream[:MarkerLen])
	var pos int
	for _, fpdu := range fpdus {
		at := uint64(pos)
		length := int(binary.BigEndian.Uint16(stream[pos+MarkedPrefix(at):]))
		n := MarkedLen(at, FPDULen(length))
		raw := stream[pos : pos+n]
		require.True(t, CheckMarked(raw))
		got, err := StripMarked(nil, raw, at)
		require.NoError(t, err)
		require.Equal(t, fpdu[:len(fpdu)-CRCLen], got[:len(got)-CRCLen])
		pos += n
	}
	require.Equal(t, len(stream), pos)
}

func TestStripMarkedTruncated(t *testing.T) {
	fpdu := randomFPDU(600)
	for _, pos := range []uint64{0, 4, 256, 508} {
		raw := AppendMarked(nil, pos, fpdu, true)
		for i := range raw {
			got, err := StripMarked([]byte("dst"), raw[:i], pos)
			require.Equal(t, io.ErrUnexpectedEOF, err, "%d of %d bytes at %d", i, len(raw), pos)
			require.Equal(t, "dst", string(got))
		}
		got, err := StripMarked([]byte("dst"), append(raw, 0), pos)
		require.Equal(t, errTrailing, err)
		require.Equal(t, "dst", string(got))
	}
}

func TestStripMarkedPointers(t *testing.T) {
	const pos = 1000
	raw := AppendMarked(nil, pos, randomFPDU(600), true)
	marker := raw[1024-pos:]
	require.Equal(t, []byte{0, 0, 0, 24}, marker[:4])

	// Reserved bytes and the low two bits are ignored.
	copy(marker, []byte{0xff, 0xff, 0, 24 | 3})
	_, err := StripMarked(nil, raw, pos)
	require.NoError(t, err)

	for _, back := range []uint16{0, 20, 28, 0xffff} {
		binary.BigEndian.PutUint16(marker[2:], back)
		got, err := StripMarked([]byte("dst"), raw, pos)
		var bad *MarkerError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, MarkerError{Offset: 1024, Got: back &^ 3, Want: 24}, *bad)
		require.ErrorContains(t, err, "1024")
		require.Equal(t, "dst", string(got))
	}

	// The pointer before the FPDU is 0; in the second marker it is 512 - 4.
	raw = AppendMarked(nil, 512, randomFPDU(600), true)
	raw[3] = 4
	_, err = StripMarked(nil, raw, 512)
	require.Equal(t, &MarkerError{Offset: 512, Got: 4}, err)
	raw[3] = 0
	require.Equal(t, []byte{0, 0, 1, 0xfc}, raw[512:516])
	raw[514] = 2
	_, err = StripMarked(nil, raw, 512)
	require.Equal(t, &MarkerError{Offset: 1024, Got: 0x2fc, Want: 0x1fc}, err)
}

func TestMarkedMisaligned(t *testing.T) {
	fpdu := frameFPDU([]byte("abc"), false)
	require.Panics(t, func() { AppendMarked(nil, 2, fpdu, true) })
	require.Panics(t, func() { AppendMarked(nil, 0, fpdu[1:], true) })
	require.Panics(t, func() { AppendMarked(nil, 0, nil, true) })
	_, err := StripMarked(nil, AppendMarked(nil, 4, fpdu, true), 3)
	require.Equal(t, errAlign, err)
}

func TestCheckMarked(t *testing.T) {
	raw := AppendMarked(nil, 0, randomFPDU(100), true)
	for i := range raw {
		raw[i] ^= 0x10
		require.False(t, CheckMarked(raw), "byte %d", i)
		raw[i] ^= 0x10
	}
	require.True(t, CheckMarked(raw))
	for n := range CRCLen {
		require.False(t, CheckMarked(raw[:n]))
	}
	require.True(t, CheckMarked(make([]byte, CRCLen)), "the CRC of nothing is 0")
}

func FuzzStripMarked(f *testing.F) {
	for _, ulpdu := range []int{0, 14, 70, 600, 1430} {
		for _, pos := range []uint64{0, 4, 252, 508} {
			f.Add(AppendMarked(nil, pos, randomFPDU(ulpdu), true), pos)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, pos uint64) {
		fpdu, err := StripMarked(nil, raw, pos)
		if err != nil {
			require.Empty(t, fpdu)
			return
		}
		ulpdu := int(binary.BigEndian.Uint16(fpdu))
		require.Len(t, fpdu, FPDULen(ulpdu))
		require.Len(t, raw, MarkedLen(pos, len(fpdu)))

		// Adding the markers again yields the same bytes, except those that a receiver ignores.
		again := AppendMarked(nil, pos, fpdu, true)
		require.Len(t, again, len(raw))
		require.True(t, CheckMarked(again))
		got, err := StripMarked(nil, again, pos)
		require.NoError(t, err)
		require.Equal(t, fpdu[:len(fpdu)-CRCLen], got[:len(got)-CRCLen])
	})
}
