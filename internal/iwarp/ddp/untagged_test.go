// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"io"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

var untaggedVectors = []struct {
	name   string
	hex    string
	header Untagged
}{
	{"Send", "414300000000000000000000000100000000", Untagged{Last: true, ULP: 0x43, QN: QNSend, MSN: 1}},
	{"Send, more to come", "01430000000000000000fffffffe000005a2", Untagged{ULP: 0x43, MSN: 0xfffffffe, MO: 1442}},
	{"Send with Invalidate", "41440badcafe000000000000000300000000",
		Untagged{Last: true, ULP: 0x44, InvSTag: 0x0badcafe, MSN: 3}},
	{"Send with SE, empty", "414500000000000000000000000200000000", Untagged{Last: true, ULP: 0x45, MSN: 2}},
	{"Read Request", "414100000000000000010000000100000000",
		Untagged{Last: true, ULP: 0x41, QN: QNReadRequest, MSN: 1}},
	{"Immediate Data", "414800000000000000000000000100000000", Untagged{Last: true, ULP: 0x48, MSN: 1}},
	{"Immediate Data with SE", "414900000000000000000000000200000000", Untagged{Last: true, ULP: 0x49, MSN: 2}},
	{"Atomic Request", "414a00000000000000010000000200000000",
		Untagged{Last: true, ULP: 0x4a, QN: QNReadRequest, MSN: 2}},
	{"Atomic Response", "414b00000000000000030000000100000000",
		Untagged{Last: true, ULP: 0x4b, QN: QNAtomicResponse, MSN: 1}},
	{"Terminate", "414700000000000000020000000100000000", Untagged{Last: true, ULP: 0x47, QN: QNTerminate, MSN: 1}},
}

func putUntagged(h Untagged) []byte {
	b := make([]byte, UntaggedLen)
	h.Put(b)
	return b
}

func TestUntaggedVectors(t *testing.T) {
	for _, v := range untaggedVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			require.Len(t, want, UntaggedLen)
			require.Equal(t, want, putUntagged(v.header))
			require.False(t, IsTagged(want[0]))
			require.EqualValues(t, Version, VersionOf(want[0]))
			got, err := ParseUntagged(append(want, "payload"...))
			require.NoError(t, err)
			require.Equal(t, v.header, got)

			for i := range want {
				got, err := ParseUntagged(want[:i])
				require.Equal(t, io.ErrUnexpectedEOF, err)
				require.Zero(t, got)
				require.Panics(t, func() { v.header.Put(make([]byte, i)) })
			}
		})
	}
}

func TestUntaggedRoundTrip(t *testing.T) {
	require.NoError(t, quick.Check(func(h Untagged) bool {
		got, err := ParseUntagged(putUntagged(h))
		return err == nil && got == h
	}, nil))
}

func FuzzParseUntagged(f *testing.F) {
	for _, v := range untaggedVectors {
		f.Add(putUntagged(v.header))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseUntagged(b)
		if len(b) < UntaggedLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, receivable(b[:UntaggedLen], false), putUntagged(h))
	})
}
