// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"encoding/hex"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/siw/ddp"
)

// appendSIW encodes a Terminate as siw does.
func appendSIW(t Terminate) []byte {
	b := t.Append(nil)
	b[0] = b[0]<<4 | b[0]>>4
	b[2] = b[2]>>7 | b[2]>>5&2 | b[2]>>3&4
	return b
}

// What siw has been seen to send, in full operation unless told otherwise.
func TestTerminateSIW(t *testing.T) {
	for _, tc := range []struct {
		name, hex         string
		setup             bool
		layer, typ, code  uint8
		tagged, headers   bool
		readRequestQuoted bool
	}{
		{name: "unsupported opcode", hex: "20060000", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperOpcode},
		{name: "RDMAP version", hex: "20050000", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperVersion},
		{name: "DDP version, untagged", hex: "21060000", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedVersion},
		{name: "CRC", hex: "02020000", layer: LayerMPA, code: 2},
		{name: "ULPDU too short", hex: "02030000", layer: LayerMPA, code: 3},
		{name: "Send, MSN", hex: "21030300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedMSN, headers: true},
		{name: "Send, MO", hex: "21040300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedMO, headers: true},
		{name: "Send, QN", hex: "21010300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedInvalidQN, headers: true},
		{name: "no buffer", hex: "21020300", layer: LayerDDP, typ: ddp.ErrTypeUntagged, code: ddp.UntaggedNoBuffer, headers: true},
		{name: "Write, STag", hex: "11000300", layer: LayerDDP, typ: ddp.ErrTypeTagged, code: ddp.TaggedInvalidSTag, headers: true, tagged: true},
		{name: "Read, STag", hex: "10000700", layer: LayerRDMAP, typ: ErrTypeProtection, code: ProtInvalidSTag, headers: true, readRequestQuoted: true},
		{name: "Read beyond IRD", hex: "20070300", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperStream, headers: true},
		{name: "unsolicited Read Response", hex: "01000300", layer: LayerDDP, typ: ddp.ErrTypeLocal, headers: true, tagged: true},
		{name: "Send with Invalidate, STag", hex: "20090300", layer: LayerRDMAP, typ: ErrTypeOperation, code: OperCannotInvalidate, headers: true},
		{name: "setup, IRD", hex: "02060000", setup: true, layer: LayerMPA, code: 6},
		{name: "setup, frame", hex: "02040000", setup: true, layer: LayerMPA, code: 4},
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

			got, swapped, err := ParseTerminateLenient(b, !tc.setup)
			require.NoError(t, err)
			require.True(t, swapped)
			require.Equal(t, want, got)
		})
	}
}

// An RFC's Terminate keeps its meaning: always if it quotes a header, and else
// wherever it may be sent at the time.
func TestTerminateLenientRFC(t *testing.T) {
	for _, v := range terminateVectors {
		b := v.terminate.Append(nil)
		for _, established := range []bool{false, true} {
			if b[2] == 0 && b[0] != 0xfe {
				continue // below
			}
			got, swapped, err := ParseTerminateLenient(b, established)
			require.NoError(t, err)
			require.False(t, swapped, v.name)
			require.Equal(t, v.terminate, got)
		}
	}
	for key, typ := range errTypes {
		for code := range 256 {
			layer, code := key[0], uint8(code)
			if !assigned(layer, key[1], code) {
				continue
			}
			want := Terminate{Layer: layer, Type: key[1], Code: code}
			for _, established := range []bool{false, true} {
				// Set-up errors after set-up, and the reverse.
				if layer == LayerMPA && code >= 5 && established ||
					layer == LayerRDMAP && key[1] == ErrTypeOperation && code >= 5 && code <= 7 && !established {
					continue
				}
				got, swapped, err := ParseTerminateLenient(want.Append(nil), established)
				require.NoError(t, err)
				require.False(t, swapped, "%s: %d, established %t", typ.name, code, established)
				require.Equal(t, want, got)
			}
		}
	}
}

// Without HdrCt bits: which layout, in full operation and during setup.
func TestTerminateLenientAmbiguous(t *testing.T) {
	const rfc, siw = false, true
	for _, tc := range []struct {
		hex                string
		established, setup bool
	}{
		{"1000", rfc, rfc}, // DDP local catastrophic; siw's 0/1/00 quotes
		{"1001", siw, siw},
		{"0100", rfc, rfc}, // invalid STag; siw's 1/0/00 quotes
		{"0101", rfc, rfc},
		{"2001", rfc, rfc},
		{"2002", rfc, rfc},
		{"2004", rfc, rfc},
		{"2005", siw, rfc},
		{"2006", siw, rfc},
		{"2007", siw, rfc},
		{"2008", siw, siw},
		{"2009", siw, siw},
		{"20ff", siw, siw},
		{"0201", siw, siw},
		{"0202", siw, siw},
		{"0203", siw, siw},
		{"0204", siw, siw},
		{"0205", rfc, siw},
		{"0206", rfc, siw},
		{"0207", rfc, siw},
		{"0208", rfc, rfc},
		{"0209", rfc, rfc},
		{"02ff", rfc, rfc},
		{"1201", rfc, rfc},
		{"1206", rfc, rfc},
		{"2101", siw, siw},
		{"2106", siw, siw},
		{"1300", rfc, rfc},
		{"3100", siw, siw},
		{"0000", rfc, rfc}, // both readings are one
		{"1100", rfc, rfc},
		{"2200", rfc, rfc},
		{"2107", rfc, rfc}, // neither means anything
		{"0a00", rfc, rfc},
	} {
		for _, established := range []bool{false, true} {
			want := tc.setup
			if established {
				want = tc.established
			}
			b := append(unhex(t, tc.hex), 0, 0)
			got, swapped, err := ParseTerminateLenient(b, established)
			require.NoError(t, err)
			require.Equal(t, want, swapped, "%s, established %t", tc.hex, established)
			layer, typ := b[0]>>4, b[0]&15
			if want {
				layer, typ = typ, layer
			}
			require.Equal(t, Terminate{Layer: layer, Type: typ, Code: b[1]}, got)
		}
	}
}

func TestTerminateLenientTruncated(t *testing.T) {
	want := Terminate{Type: ErrTypeProtection, SegLenValid: true, SegLen: 16, DDPHeader: quotedUntagged, RDMAPHeader: quotedRequest}
	for _, siw := range []bool{false, true} {
		b := want.Append(nil)
		if siw {
			b = appendSIW(want)
		}
		for i := range b {
			got, swapped, err := ParseTerminateLenient(b[:i], true)
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
		f.Add(v.terminate.Append(nil), true)
		f.Add(appendSIW(v.terminate), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, established bool) {
		got, swapped, err := ParseTerminateLenient(b, established)
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
