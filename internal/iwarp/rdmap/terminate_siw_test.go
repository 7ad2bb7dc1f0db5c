// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

// appendSIW encodes a Terminate as siw does.
func appendSIW(t Terminate) []byte {
	b := t.Append(nil)
	b[0] = b[0]<<4 | b[0]>>4
	b[2] = b[2]>>7 | b[2]>>5&2 | b[2]>>3&4
	return b
}

// Terminates that siw was observed to send. If siw quotes no header, they are decoded in the RFC's
// layout.
func TestTerminateSIW(t *testing.T) {
	for _, tc := range []struct {
		name, hex         string
		layer, typ, code  uint8 // the values that siw means
		tagged, headers   bool
		readRequestQuoted bool
	}{
		{name: "unsupported opcode", hex: "20060000", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperOpcode},
		{name: "RDMAP version", hex: "20050000", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperVersion},
		{name: "DDP version, untagged", hex: "21060000", layer: LayerDDP, typ: ddp.ErrTypeUntagged,
			code: ddp.UntaggedVersion},
		{name: "CRC", hex: "02020000", layer: LayerMPA, code: 2},
		{name: "ULPDU too short", hex: "02030000", layer: LayerMPA, code: 3},
		{name: "Send, MSN", hex: "21030300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedMSN,
			headers: true},
		{name: "Send, MO", hex: "21040300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedMO,
			headers: true},
		{name: "Send, QN", hex: "21010300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedInvalidQN,
			headers: true},
		{name: "no buffer", hex: "21020300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedNoBuffer,
			headers: true},
		{name: "Write, STag", hex: "11000300", layer: LayerDDP, typ: ddp.ErrTypeTagged, code: ddp.TaggedInvalidSTag,
			headers: true, tagged: true},
		{name: "Read, STag", hex: "10000700", layer: LayerRDMAP, typ: ErrTypeProtection, code: ProtInvalidSTag,
			headers: true, readRequestQuoted: true},
		{name: "Read beyond IRD", hex: "20070300", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperStream,
			headers: true},
		{name: "unsolicited Read Response", hex: "01000300", layer: LayerDDP, typ: ddp.ErrTypeLocal, headers: true,
			tagged: true},
		{name: "Send with Invalidate, STag", hex: "20090300", layer: LayerRDMAP, typ: ErrTypeOperation,
			code: OperCannotInvalidate, headers: true}, {name: "setup, IRD", hex: "02060000", layer: LayerMPA, code: 6},
		{name: "setup, frame", hex: "02040000", layer: LayerMPA, code: 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := Terminate{Layer: tc.layer, Type: tc.typ, Code: tc.code}
			if tc.headers {
				want.SegLenValid, want.SegLen = true, 16
				want.DDPHeader = quotedUntagged
				if tc.tagged {
					want.DDPHeader = quotedTagged
				}
			}
			if tc.readRequestQuoted {
				want.RDMAPHeader = quotedRequest
			}
			b := appendSIW(want)
			require.Equal(t, tc.hex, hex.EncodeToString(b[:TerminateLen]))

			got, swapped, err := ParseTerminateLenient(b)
			require.NoError(t, err)
			require.Equal(t, tc.headers, swapped)
			if tc.headers {
				require.Equal(t, want, got)
				return
			}
			require.Equal(t, Terminate{Layer: tc.typ, Type: tc.layer, Code: tc.code}, got)
			require.Equal(t, TerminateText(tc.layer, tc.typ, tc.code), SIWMeaning(&got))
		})
	}
}

// A Terminate in the RFC's layout keeps its meaning in all cases.
func TestTerminateLenientRFC(t *testing.T) {
	for _, v := range terminateVectors {
		got, swapped, err := ParseTerminateLenient(v.terminate.Append(nil))
		require.NoError(t, err)
		require.False(t, swapped, v.name)
		require.Equal(t, v.terminate, got)
	}
	for first := range 256 {
		for code := range 256 {
			want := Terminate{Layer: uint8(first >> 4), Type: uint8(first & 15), Code: uint8(code)}
			got, swapped, err := ParseTerminateLenient(want.Append(nil))
			require.NoError(t, err)
			require.False(t, swapped)
			require.Equal(t, want, got)
		}
	}
}

// The layout is siw's if bits are set in its places and none in the RFC's. Other bits are ignored.
func TestTerminateLayout(t *testing.T) {
	for flags := range 256 {
		b := append([]byte{0x21, 0x03, byte(flags), 0, 0, 16}, quotedUntagged...)
		b = append(b, quotedRequest...)
		got, swapped, err := ParseTerminateLenient(b)
		require.NoError(t, err)
		want := flags&0xe0 == 0 && flags&0x07 != 0
		require.Equal(t, want, swapped, "%#x", flags)
		layer, typ := uint8(2), uint8(1)
		if want {
			layer, typ = typ, layer
		}
		require.Equal(t, []uint8{layer, typ, 3}, []uint8{got.Layer, got.Type, got.Code})
	}
}

// Without quoted headers: what siw would mean, or that it would not send this.
func TestSIWMeaning(t *testing.T) {
	quoted := Terminate{Layer: 2, Code: 6, SegLenValid: true, DDPHeader: quotedUntagged}
	require.Empty(t, SIWMeaning(&quoted), "siw's would have been read as that")
	for _, tc := range []struct {
		layer, typ, code uint8
		want             string
	}{
		{2, 0, 6, "RDMAP remote operation error: unexpected opcode"},
		{2, 1, 6, "DDP untagged buffer error: invalid DDP version"},
		{0, 2, 2, "MPA error: CRC mismatch"},
		{0, 2, 6, "MPA error: insufficient IRD resources"}, // or what the RFC defines
		{0, 2, 8, ""},
		{2, 0, 2, ""},
		{1, 0, 0, ""}, // siw's 0/1/00 quotes
		{0, 1, 0, ""}, // siw's 1/0/00 quotes
		{1, 1, 4, ""}, // both readings are the same
		{2, 2, 6, ""},
		{7, 7, 6, ""},
	} {
		require.Equal(t, tc.want, SIWMeaning(&Terminate{Layer: tc.layer, Type: tc.typ, Code: tc.code}), "%v", tc)
	}
}

func TestTerminateLenientTruncated(t *testing.T) {
	want := Terminate{Type: ErrTypeProtection, SegLenValid: true, SegLen: 16, DDPHeader: quotedUntagged,
		RDMAPHeader: quotedRequest}
	for _, siw := range []bool{false, true} {
		b := want.Append(nil)
		if siw {
			b = appendSIW(want)
		}
		for i := range b {
			got, swapped, err := ParseTerminateLenient(b[:i])
			require.Equal(t, io.ErrUnexpectedEOF, err)
			if i < TerminateLen {
				require.Zero(t, got)
				continue
			}
			require.Equal(t, siw, swapped)
			require.Equal(t, want.Layer, got.Layer)
			require.Equal(t, want.Type, got.Type)
		}
	}
}

func FuzzParseTerminateLenient(f *testing.F) {
	for _, v := range terminateVectors {
		f.Add(v.terminate.Append(nil))
		f.Add(appendSIW(v.terminate))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, swapped, err := ParseTerminateLenient(b)
		if len(b) < TerminateLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NotEmpty(t, TerminateText(got.Layer, got.Type, got.Code))
		if !swapped {
			plain, plainErr := ParseTerminate(b)
			require.Equal(t, plainErr, err)
			require.Equal(t, plain, got)
			return
		}
		if err != nil {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		again := appendSIW(got)
		require.Equal(t, b[:2], again[:2], fmt.Sprintf("%+v", got))
		require.Equal(t, b[2]&0x07, again[2])
		require.Equal(t, b[TerminateLen:len(again)], again[TerminateLen:])
	})
}
