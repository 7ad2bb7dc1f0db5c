// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"io"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

const hexReadRequest = "00000051000000000005200000000020000000530000000000054000"

func TestReadRequestVector(t *testing.T) {
	want := unhex(t, hexReadRequest)
	require.Equal(t, want, put(ReadRequestLen, vectorReadRequest))
	got, err := ParseReadRequest(append(want, "more"...))
	require.NoError(t, err)
	require.Equal(t, vectorReadRequest, got)

	for i := range want {
		got, err := ParseReadRequest(want[:i])
		require.Equal(t, io.ErrUnexpectedEOF, err)
		require.Zero(t, got)
		require.Panics(t, func() { vectorReadRequest.Put(make([]byte, i)) })
	}
}

func TestReadRequestRoundTrip(t *testing.T) {
	require.NoError(t, quick.Check(func(r ReadRequest) bool {
		got, err := ParseReadRequest(put(ReadRequestLen, r))
		return err == nil && got == r
	}, nil))
}

func FuzzReadRequest(f *testing.F) {
	f.Add(put(ReadRequestLen, vectorReadRequest))
	f.Add(put(ReadRequestLen, ReadRequest{Size: 1<<32 - 1, SrcTO: 1<<64 - 1}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReadRequest(b)
		if len(b) < ReadRequestLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NoError(t, err)
		require.Equal(t, b[:ReadRequestLen], put(ReadRequestLen, r))
	})
}
