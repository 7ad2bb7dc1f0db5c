// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
)

var (
	quotedUntagged = put(ddp.UntaggedLen,
		ddp.Untagged{Last: true, ULP: Control(OpReadRequest), QN: ddp.QNReadRequest, MSN: 4})
	quotedTagged  = put(ddp.TaggedLen, ddp.Tagged{Last: true, ULP: Control(OpWrite), STag: 0xbad, TO: 0x1000})
	quotedRequest = put(ReadRequestLen, vectorReadRequest)
)

var terminateVectors = []struct {
	name, hex string
	terminate Terminate
}{
	{
		"unexpected opcode",
		"02060000",
		Terminate{Layer: LayerRDMAP, Type: ErrTypeOperation, Code: OperOpcode},
	},
	{
		"insufficient IRD",
		"20060000",
		Terminate{Layer: LayerMPA, Code: 6},
	},
	{
		"catastrophic error, DDP header of an Atomic Request",
		"0207c0000046414a00000000000000010000000400000000",
		Terminate{
			Type: ErrTypeOperation, Code: OperStream, SegLenValid: true, SegLen: 70,
			DDPHeader: put(ddp.UntaggedLen,
				ddp.Untagged{Last: true, ULP: Control(OpAtomicRequest), QN: ddp.QNReadRequest, MSN: 4}),
		},
	},
	{
		"invalid STag of a Write, tagged DDP header",
		"1100c0000216c14000000bad0000000000001000",
		Terminate{Layer: LayerDDP, Type: ddp.ErrTypeTagged, Code: ddp.TaggedInvalidSTag, SegLenValid: true,
			SegLen: 0x216, DDPHeader: quotedTagged},
	},
	{
		"invalid STag of a Read Request, both headers",
		"0100e000002e414100000000000000010000000400000000" + hexReadRequest,
		Terminate{Type: ErrTypeProtection, SegLenValid: true, SegLen: 46, DDPHeader: quotedUntagged,
			RDMAPHeader: quotedRequest},
	},
	{
		"DDP header, its length not valid",
		"0205400000004141000000000000000100000004" + "00000000",
		Terminate{Type: ErrTypeOperation, Code: OperVersion, DDPHeader: quotedUntagged},
	},
	{
		"length alone",
		"02ff8000" + "0102",
		Terminate{Type: ErrTypeOperation, Code: Unspecified, SegLenValid: true, SegLen: 0x102},
	},
	{
		"Read Request alone",
		"01022000" + hexReadRequest,
		Terminate{Type: ErrTypeProtection, Code: ProtAccess, RDMAPHeader: quotedRequest},
	},
	{
		"every layer and type parses",
		"fe7f0000",
		Terminate{Layer: 15, Type: 14, Code: 0x7f},
	},
}

func TestTerminateVectors(t *testing.T) {
	for _, v := range terminateVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			require.Equal(t, want, v.terminate.Append(nil))
			require.Equal(t, append([]byte("before"), want...), v.terminate.Append([]byte("before")))
			require.LessOrEqual(t, len(want), MaxTerminateLen)

			got, err := ParseTerminate(append(want[:len(want):len(want)], "more"...))
			require.NoError(t, err)
			require.Equal(t, v.terminate, got)
			require.Equal(t, len(got.DDPHeader), cap(got.DDPHeader))

			// Reserved bits are ignored.
			odd := append([]byte(nil), want...)
			odd[2] |= 0x1f
			odd[3] = 0xff
			got, err = ParseTerminate(odd)
			require.NoError(t, err)
			require.Equal(t, v.terminate, got)
		})
	}
}

func TestTerminateTruncated(t *testing.T) {
	for _, v := range terminateVectors {
		want := unhex(t, v.hex)
		for i := range want {
			got, err := ParseTerminate(want[:i])
			require.Equal(t, io.ErrUnexpectedEOF, err, "%s: %d bytes", v.name, i)
			if i < TerminateLen {
				require.Zero(t, got)
				continue
			}
			// The reason for ending the stream is known even so.
			require.Equal(t, v.terminate.Layer, got.Layer)
			require.Equal(t, v.terminate.Type, got.Type)
			require.Equal(t, v.terminate.Code, got.Code)
			require.Nil(t, got.RDMAPHeader)
			if i < TerminateLen+segLenLen+len(v.terminate.DDPHeader) {
				require.Nil(t, got.DDPHeader)
			}
		}
	}
}

// A whole segment may be passed for its headers; one that is too short is not quoted.
func TestTerminateAppendCuts(t *testing.T) {
	want := Terminate{SegLenValid: true, SegLen: 46, DDPHeader: quotedUntagged, RDMAPHeader: quotedRequest}
	segment := append(append([]byte(nil), quotedUntagged...), quotedRequest...)
	got := Terminate{SegLenValid: true, SegLen: 46, DDPHeader: segment,
		RDMAPHeader: append(segment[ddp.UntaggedLen:], "more"...)}
	require.Equal(t, want.Append(nil), got.Append(nil))
	require.Len(t, got.Append(nil), MaxTerminateLen)

	want = Terminate{DDPHeader: quotedTagged}
	got = Terminate{DDPHeader: append(quotedTagged[:ddp.TaggedLen:ddp.TaggedLen], "payload"...)}
	require.Equal(t, want.Append(nil), got.Append(nil))

	for _, short := range []Terminate{
		{DDPHeader: quotedTagged[:ddp.TaggedLen-1]},
		{DDPHeader: quotedUntagged[:ddp.UntaggedLen-1]},
		{DDPHeader: []byte{}, RDMAPHeader: quotedRequest[:ReadRequestLen-1]},
	} {
		require.Equal(t, make([]byte, TerminateLen), short.Append(nil))
	}
}

func FuzzParseTerminate(f *testing.F) {
	for _, v := range terminateVectors {
		f.Add(v.terminate.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseTerminate(b)
		if err != nil {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		again := got.Append(nil)
		require.Equal(t, b[:2], again[:2])
		require.Equal(t, b[2]&0xe0, again[2])
		require.Equal(t, b[TerminateLen:len(again)], again[TerminateLen:])
	})
}
