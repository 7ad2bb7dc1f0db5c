// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// example is private data as C rsockets on a little-endian host send it, with distinguishable
// numbers.
const example = "01" + "02" + "0180" + "000000" + "00" +
	"00007f0102030400" + "11223344" + "00000002" +
	"00007f0102030500" + "55667788" + "00010000"

func exampleData() connData {
	return connData{credits: 384, hasArea: true, table: entry{0x7f0102030400, 0x11223344, 2},
		buffer: entry{0x7f0102030500, 0x55667788, 65536}}
}

func TestConnDataBytes(t *testing.T) {
	want, err := hex.DecodeString(example)
	require.NoError(t, err)
	d := exampleData()
	require.Equal(t, want, d.append(nil))
	got, err := parseConnData(want)
	require.NoError(t, err)
	require.Equal(t, d, got)
	for n := range want {
		_, err := parseConnData(want[:n])
		requireViolation(t, err, ShortPrivateData)
	}
	// InfiniBand's padding, unknown flags and the reserved bytes do not matter.
	odd := append(bytes.Clone(want), make([]byte, 156)...)
	odd[1] |= 0xf0
	odd[4], odd[5], odd[6] = 0xa5, 0x5a, 0xff
	got, err = parseConnData(odd)
	require.NoError(t, err)
	require.Equal(t, d, got)
}

func requireViolation(t *testing.T, err error, v Violation) {
	t.Helper()
	var p *ProtocolError
	require.ErrorAs(t, err, &p)
	require.Equal(t, v, p.Violation, err)
	require.ErrorIs(t, err, ErrProtocol)
}

func TestConnDataRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(b []byte)
		want   Violation
	}{
		{"version 0", func(b []byte) { b[0] = 0 }, WrongVersion},
		{"version 2", func(b []byte) { b[0] = 2 }, WrongVersion},
		{"no credits", func(b []byte) { b[2], b[3] = 0, 0 }, NoCredits},
		{"table of 1", func(b []byte) { b[23] = 1 }, ShortTable},
		{"table of 0", func(b []byte) { b[23] = 0 }, ShortTable},
		{"table wraps", func(b []byte) { binary.BigEndian.PutUint64(b[8:], math.MaxUint64-30) }, BadMemory},
		{"mappings wrap", func(b []byte) { binary.BigEndian.PutUint64(b[8:], math.MaxUint64-40); b[7] = 1 }, BadMemory},
		{"no buffer", func(b []byte) { clear(b[36:40]) }, BadMemory},
		{"buffer wraps", func(b []byte) { binary.BigEndian.PutUint64(b[24:], math.MaxUint64-100) }, BadMemory},
	} {
		b, err := hex.DecodeString(example)
		require.NoError(t, err)
		c.change(b)
		_, err = parseConnData(b)
		requireViolation(t, err, c.want)
	}
}

func TestScale(t *testing.T) {
	for n, want := range map[int]byte{0: 0, 1: 1, 128: 128, 256: 0x81, 1024: 0x84, 32512: 0xff} {
		require.Equal(t, want, scaled(n), n)
		require.Equal(t, n, unscaled(want), n)
	}
}

func TestMessageBits(t *testing.T) {
	for want, m := range map[uint32]message{
		0x00000064: newMessage(opData, 100),
		0x80000180: newMessage(opGrant, 384),
		0xC0000003: newMessage(opMapping, 3),
		0xE0000000: newMessage(opControl, ctrlDisconnect),
		0xE0000002: newMessage(opControl, ctrlShutdown),
	} {
		require.Equal(t, want, uint32(m))
		require.Equal(t, m, newMessage(m.op(), m.data()))
	}
}

func TestEntryOrder(t *testing.T) {
	b := make([]byte, entryLen)
	e := entry{0x0102030405060708, 0x0a0b0c0d, 0x10203040}
	e.put(b, binary.LittleEndian)
	require.Equal(t, "08070605040302010d0c0b0a40302010", hex.EncodeToString(b))
	e.put(b, binary.BigEndian)
	require.Equal(t, "01020304050607080a0b0c0d10203040", hex.EncodeToString(b))
	require.Equal(t, e, parseEntry(b))
}

// FuzzConnData: whatever is accepted can be used and is encoded to the same bytes.
func FuzzConnData(f *testing.F) {
	d := exampleData()
	f.Add(d.append(nil))
	d = connData{bigEndian: true, hasArea: true, mappings: 128, credits: 65535, table: entry{1, 2, 7},
		buffer: entry{3, 4, 1}}
	f.Add(d.append(nil))
	f.Add(make([]byte, 56))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseConnData(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.Positive(t, d.credits)
		require.GreaterOrEqual(t, d.table.length, uint32(2))
		require.NoError(t, d.buffer.check())
		if d.mappings > 128 && d.mappings%256 != 0 || !d.hasArea {
			return
		}
		again, err := parseConnData(d.append(nil))
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}

func TestViolationTexts(t *testing.T) {
	seen := map[string]bool{}
	for v := range DataAfterEnd + 1 {
		require.NotEmpty(t, v.String())
		require.False(t, seen[v.String()], v)
		seen[v.String()] = true
	}
	require.Equal(t, "Violation(77)", Violation(77).String())
	require.Equal(t, "the peer violates the rsocket protocol: more data than there is room for (0x11, allowed 0x10)",
		violation(TooMuchData, 17, 16).Error())
}
