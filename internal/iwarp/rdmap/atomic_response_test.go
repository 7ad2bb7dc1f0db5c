// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"io"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

func TestAtomicResponseVector(t *testing.T) {
	want := unhex(t, "000000110000000000000029")
	require.Equal(t, want, put(AtomicResponseLen, vectorAtomicResponse))
	got, err := ParseAtomicResponse(append(want, "more"...))
	require.NoError(t, err)
	require.Equal(t, vectorAtomicResponse, got)

	for i := range want {
		got, err := ParseAtomicResponse(want[:i])
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.Zero(t, got)
		require.Panics(t, func() { vectorAtomicResponse.Put(make([]byte, i)) })
	}
}

func TestAtomicResponseRoundTrip(t *testing.T) {
	require.NoError(t, quick.Check(func(r AtomicResponse) bool {
		got, err := ParseAtomicResponse(put(AtomicResponseLen, r))
		return err == nil && got == r
	}, nil))
}

func FuzzAtomicResponse(f *testing.F) {
	f.Add(put(AtomicResponseLen, vectorAtomicResponse))
	f.Add(put(AtomicResponseLen, AtomicResponse{ID: 1<<32 - 1, Value: 1<<64 - 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseAtomicResponse(b)
		if len(b) < AtomicResponseLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, b[:AtomicResponseLen], put(AtomicResponseLen, r))
	})
}
