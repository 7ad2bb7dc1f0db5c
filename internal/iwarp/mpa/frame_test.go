// SPDX-License-Identifier: BSD-3-Clause

package mpa

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

// mustAppend encodes a valid frame.
func mustAppend(t testing.TB, f Frame) []byte {
	t.Helper()
	b, err := f.Append(nil)
	require.NoError(t, err)
	return b
}

const (
	hexRequest = "4d504120494420526571204672616d65"
	hexReply   = "4d504120494420526570204672616d65"
)

var frameVectors = []struct {
	name  string
	hex   string
	frame Frame
}{
	{
		"request, revision 2, CRC, IRD 4, ORD 4",
		hexRequest + "5002000400040004",
		Frame{CRC: true, Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{IRD: 4, ORD: 4}},
	},
	{
		"reply, revision 2, CRC, IRD 4, ORD 4",
		hexReply + "5002000400040004",
		Frame{Reply: true, CRC: true, Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{IRD: 4, ORD: 4}},
	},
	{
		"request, peer-to-peer, RTR by Write and Read",
		hexRequest + "500200048004c004",
		Frame{CRC: true, Rev: Rev2, HasEnhanced: true,
			Enhanced: Enhanced{PeerToPeer: true, RTRWrite: true, RTRRead: true, IRD: 4, ORD: 4}},
	},
	{
		"request, peer-to-peer, RTR by Send, no depth negotiation",
		hexRequest + "10020004ffff3fff",
		Frame{Rev: Rev2, HasEnhanced: true,
			Enhanced: Enhanced{PeerToPeer: true, RTRSend: true, IRD: NoNegotiate, ORD: NoNegotiate}},
	},
	{
		"request, revision 1, CRC",
		hexRequest + "40010000",
		Frame{CRC: true, Rev: Rev1},
	},
	{
		"request, revision 1, private data",
		hexRequest + "00010003616263",
		Frame{Rev: Rev1, PrivateData: []byte("abc")},
	},
	{
		"request, revision 2 without the enhanced word, markers",
		hexRequest + "80020004616263" + "64",
		Frame{Markers: true, Rev: Rev2, PrivateData: []byte("abcd")},
	},
	{
		"reply, RDMA Consortium, markers and CRC",
		hexReply + "c0000000",
		Frame{Reply: true, Markers: true, CRC: true, Rev: Rev0},
	},
	{
		"reply, rejected, enhanced word and private data",
		hexReply + "70020007000100026e6f21",
		Frame{Reply: true, CRC: true, Reject: true, Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{IRD: 1, ORD: 2},
			PrivateData: []byte("no!")},
	},
	{
		"request, revision 3",
		hexRequest + "1003000400010002",
		Frame{Rev: 3, HasEnhanced: true, Enhanced: Enhanced{IRD: 1, ORD: 2}},
	},
}

func TestFrameVectors(t *testing.T) {
	for _, v := range frameVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			require.Equal(t, want, mustAppend(t, v.frame))

			f, n, err := ParseFrame(want)
			require.NoError(t, err)
			require.Equal(t, len(want), n)
			require.Equal(t, v.frame, f)

			// Bytes after the frame are not part of it.
			f, n, err = ParseFrame(append(want[:len(want):len(want)], "more"...))
			require.NoError(t, err)
			require.Equal(t, len(want), n)
			require.Equal(t, v.frame, f)

			f, err = ReadFrame(bytes.NewReader(want))
			require.NoError(t, err)
			require.Equal(t, v.frame, f)
		})
	}
}

func TestFrameAppendKeepsPrefix(t *testing.T) {
	f := Frame{Rev: Rev1, PrivateData: []byte("x")}
	b, err := f.Append([]byte("before"))
	require.NoError(t, err)
	require.Equal(t, "before"+keyRequest+"\x00\x01\x00\x01x", string(b))

	f.Reject = true
	b, err = f.Append([]byte("before"))
	require.Error(t, err)
	require.Equal(t, "before", string(b))
}

func TestFrameTruncated(t *testing.T) {
	for _, v := range frameVectors {
		data := unhex(t, v.hex)
		for i := range data {
			f, n, err := ParseFrame(data[:i])
			require.Equal(t, io.ErrUnexpectedEOF, err, "%s: %d bytes", v.name, i)
			require.Zero(t, n)
			require.Zero(t, f)

			want := io.ErrUnexpectedEOF
			if i == 0 {
				want = io.EOF
			}
			f, err = ReadFrame(bytes.NewReader(data[:i]))
			require.Equal(t, want, err, "%s: %d bytes", v.name, i)
			require.Zero(t, f)
		}
	}
}

func TestReadFrameTakesNoMore(t *testing.T) {
	for _, v := range frameVectors {
		data := unhex(t, v.hex)
		r := bytes.NewReader(append(data, "fpdu"...))
		f, err := ReadFrame(iotest.OneByteReader(r))
		require.NoError(t, err)
		require.Equal(t, v.frame, f)
		rest, err := io.ReadAll(r)
		require.NoError(t, err)
		require.Equal(t, "fpdu", string(rest))
	}
}

func TestReadFrameError(t *testing.T) {
	errBroken := errors.New("broken")
	_, err := ReadFrame(iotest.ErrReader(errBroken))
	require.Equal(t, errBroken, err)

	// The error occurs in the private data.
	head := unhex(t, hexRequest+"00010003")
	_, err = ReadFrame(io.MultiReader(bytes.NewReader(head), iotest.ErrReader(errBroken)))
	require.Equal(t, errBroken, err)

	// After an invalid length, the private data are not read either.
	head = unhex(t, hexRequest+"00010201")
	_, err = ReadFrame(io.MultiReader(bytes.NewReader(head), iotest.ErrReader(errBroken)))
	var bad *FrameError
	require.ErrorAs(t, err, &bad)
}

func TestFrameMalformed(t *testing.T) {
	for _, tc := range []struct{ name, hex, reason string }{
		{"other protocol", hex.EncodeToString([]byte("GET / HTTP/1.1\r\n\r\n\r\n")), "bad key"},
		{"first byte", "00", "bad key"},
		{"key between request and reply", "4d504120494420526572", "bad key"},
		{"last byte of the key", "4d504120494420526571204672616d66", "bad key"},
		{"513 bytes of private data", hexRequest + "00010201", "513"},
		{"65535 bytes of private data", hexReply + "0001ffff", "65535"},
		{"enhanced without private data", hexReply + "10020000", "0 bytes"},
		{"enhanced with 3 bytes", hexRequest + "10020003000000", "3 bytes"},
		{"enhanced with 3 bytes, revision 3", hexRequest + "10030003000000", "3 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := unhex(t, tc.hex)
			f, n, err := ParseFrame(b)
			var bad *FrameError
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, tc.reason)
			require.Zero(t, f)
			require.Zero(t, n)

			if len(b) >= FrameLen {
				f, err = ReadFrame(bytes.NewReader(b))
				require.ErrorAs(t, err, &bad)
				require.Zero(t, f)
			}
		})
	}
}

// Every byte of the key is checked, as soon as it arrives.
func TestFrameKey(t *testing.T) {
	for _, key := range []string{keyRequest, keyReply} {
		for i := range len(key) {
			b := []byte(key + "\x00\x01\x00\x00")
			b[i] ^= 0x80
			for _, n := range []int{i + 1, keyLen, FrameLen} {
				_, _, err := ParseFrame(b[:n])
				var bad *FrameError
				require.ErrorAs(t, err, &bad)
			}
		}
	}
}

func TestFrameAccepted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hex   string
		frame Frame
	}{
		{
			"reserved bits are not checked",
			hexRequest + "0f010000",
			Frame{Rev: Rev1},
		},
		{
			"the reject bit of a request is not checked",
			hexRequest + "60010000",
			Frame{CRC: true, Rev: Rev1},
		},
		{
			"the enhanced bit is reserved at revision 1",
			hexReply + "5001000400040004",
			Frame{Reply: true, CRC: true, Rev: Rev1, PrivateData: []byte{0, 4, 0, 4}},
		},
		{
			"nor does it ask for private data there",
			hexReply + "50010000",
			Frame{Reply: true, CRC: true, Rev: Rev1},
		},
		{
			"kinds of RTR are ignored without peer-to-peer",
			hexRequest + "100200044001c002",
			Frame{Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{IRD: 1, ORD: 2}},
		},
		{
			"any revision",
			hexRequest + "00ff0000",
			Frame{Rev: 255},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := unhex(t, tc.hex)
			f, n, err := ParseFrame(b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			require.Equal(t, tc.frame, f)
		})
	}
}

func TestFrameAppendErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		frame  Frame
		reason string
	}{
		{"private data", Frame{Rev: Rev1, PrivateData: make([]byte, 513)}, "513 bytes"},
		{"private data with the enhanced word", Frame{Rev: Rev2, HasEnhanced: true, PrivateData: make([]byte, 509)},
			"513 bytes"},
		{"IRD", Frame{Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{IRD: 0x4000}}, "IRD 16384"},
		{"ORD", Frame{Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{ORD: 0xffff}}, "ORD 65535"},
		{"enhanced at revision 1", Frame{Rev: Rev1, HasEnhanced: true}, "has 1"},
		{"enhanced at revision 0", Frame{Rev: Rev0, HasEnhanced: true}, "has 0"},
		{"RTR without peer-to-peer", Frame{Rev: Rev2, HasEnhanced: true, Enhanced: Enhanced{RTRWrite: true}}, "RTR"},
		{"request that rejects", Frame{Rev: Rev2, Reject: true}, "reject bit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := tc.frame.Append(nil)
			var bad *FrameError
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, tc.reason)
			require.Nil(t, b)
		})
	}
}

func TestFrameLargest(t *testing.T) {
	for _, f := range []Frame{
		{Rev: Rev1, PrivateData: bytes.Repeat([]byte{1}, MaxPrivateData)},
		{Rev: Rev2, HasEnhanced: true, PrivateData: bytes.Repeat([]byte{1}, MaxPrivateData-EnhancedLen)},
	} {
		b := mustAppend(t, f)
		require.Len(t, b, FrameLen+MaxPrivateData)
		got, n, err := ParseFrame(b)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, f, got)
	}
}

func randomFrame(r *rand.Rand) Frame {
	bit := func() bool { return r.Uint32()&1 != 0 }
	f := Frame{Reply: bit(), Markers: bit(), CRC: bit(), Rev: uint8(r.Uint32N(4))}
	f.Reject = f.Reply && bit()
	if f.HasEnhanced = f.Rev >= Rev2 && bit(); f.HasEnhanced {
		f.Enhanced = Enhanced{PeerToPeer: bit(), IRD: uint16(r.Uint32N(0x4000)), ORD: uint16(r.Uint32N(0x4000))}
		if f.Enhanced.PeerToPeer {
			f.Enhanced.RTRSend, f.Enhanced.RTRWrite, f.Enhanced.RTRRead = bit(), bit(), bit()
		}
	}
	if n := r.IntN(MaxPrivateData - EnhancedLen + 1); n > 0 {
		f.PrivateData = make([]byte, n)
		for i := range f.PrivateData {
			f.PrivateData[i] = byte(r.Uint32())
		}
	}
	return f
}

func TestFrameRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(5044, 6581))
	for range 2000 {
		f := randomFrame(r)
		b := mustAppend(t, f)
		got, n, err := ParseFrame(b)
		require.NoError(t, err)
		require.Equal(t, len(b), n)
		require.Equal(t, f, got)
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, v := range frameVectors {
		b := mustAppend(f, v.frame)
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, n, err := ParseFrame(b)
		read, readErr := ReadFrame(bytes.NewReader(b))
		if err != nil {
			require.Zero(t, frame)
			require.Zero(t, n)
			require.Error(t, readErr)
			return
		}
		require.NoError(t, readErr)
		require.Equal(t, frame, read)
		require.LessOrEqual(t, n, len(b))

		// A frame that parses can be sent, and means the same.
		again := mustAppend(t, frame)
		require.Len(t, again, n)
		got, _, err := ParseFrame(again)
		require.NoError(t, err)
		require.Equal(t, frame, got)
	})
}
