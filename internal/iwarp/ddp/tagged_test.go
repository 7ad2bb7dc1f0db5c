// SPDX-License-Identifier: BSD-3-Clause

package ddp

import (
	"io"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

var taggedVectors = []struct {
	name   string
	hex    string
	header Tagged
}{
	{"Write", "c14000abcd010000000000001000", Tagged{Last: true, ULP: 0x40, STag: 0x00abcd01, TO: 0x1000}},
	{"Write, empty", "c140000000010000000000000000", Tagged{Last: true, ULP: 0x40, STag: 1}},
	{"Write, more to come", "814000abcd010000000000001000", Tagged{ULP: 0x40, STag: 0x00abcd01, TO: 0x1000}},
	{"Read Response", "c14200000051fedcba9876543210",
		Tagged{Last: true, ULP: 0x42, STag: 0x51, TO: 0xfedcba9876543210}},
}

func putTagged(h Tagged) []byte {
	b := make([]byte, TaggedLen)
	h.Put(b)
	return b
}

func TestTaggedVectors(t *testing.T) {
	for _, v := range taggedVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			require.Len(t, want, TaggedLen)
			require.Equal(t, want, putTagged(v.header))
			require.True(t, IsTagged(want[0]))
			require.EqualValues(t, Version, VersionOf(want[0]))
			got, err := ParseTagged(append(want, "payload"...))
			require.NoError(t, err)
			require.Equal(t, v.header, got)

			for i := range want {
				got, err := ParseTagged(want[:i])
				require.Equal(t, io.ErrUnexpectedEOF, err)
				require.Zero(t, got)
				require.Panics(t, func() { v.header.Put(make([]byte, i)) })
			}
		})
	}
}

func TestTaggedRoundTrip(t *testing.T) {
	require.NoError(t, quick.Check(func(h Tagged) bool {
		got, err := ParseTagged(putTagged(h))
		return err == nil && got == h
	}, nil))
}

func FuzzParseTagged(f *testing.F) {
	for _, v := range taggedVectors {
		f.Add(putTagged(v.header))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseTagged(b)
		if len(b) < TaggedLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, receivable(b[:TaggedLen], true), putTagged(h))
	})
}
