// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import (
	"io"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

var atomicRequestVectors = []struct {
	name, hex string
	request   AtomicRequest
}{
	{
		"FetchAdd",
		"000000000000001100abcd0000007f0000001000000000000000000500000000000000000000000000000000ffffffffffffffff",
		vectorFetchAdd,
	},
	{
		"CmpSwap",
		"000000020000001200abcd0000007f00000010080000000000000009ffffffffffffffff0000000000000005ffffffffffffffff",
		vectorCmpSwap,
	},
	{
		"every field different",
		"00000002010203040506070811121314151617182122232425262728313233343536373841424344454647485152535455565758",
		AtomicRequest{
			Op: AtomicCmpSwap, ID: 0x01020304, STag: 0x05060708, TO: 0x1112131415161718,
			AddSwap: 0x2122232425262728, AddSwapMask: 0x3132333435363738, Compare: 0x4142434445464748,
			CompareMask: 0x5152535455565758,
		},
	},
}

func TestAtomicRequestVectors(t *testing.T) {
	for _, v := range atomicRequestVectors {
		t.Run(v.name, func(t *testing.T) {
			want := unhex(t, v.hex)
			require.Equal(t, want, put(AtomicRequestLen, v.request))
			got, err := ParseAtomicRequest(append(want, "more"...))
			require.NoError(t, err)
			require.Equal(t, v.request, got)

			for i := range want {
				got, err := ParseAtomicRequest(want[:i])
				require.Equal(t, io.ErrUnexpectedEOF, err)
				require.Zero(t, got)
				require.Panics(t, func() { v.request.Put(make([]byte, i)) })
			}
		})
	}
}

func TestAtomicRequestReserved(t *testing.T) {
	b := put(AtomicRequestLen, vectorCmpSwap)
	copy(b, []byte{0xff, 0xff, 0xff, 0xf2})
	got, err := ParseAtomicRequest(b)
	require.NoError(t, err)
	require.Equal(t, vectorCmpSwap, got)

	// Op has four bits on the wire.
	odd := vectorCmpSwap
	odd.Op = 0xf3
	require.Equal(t, []byte{0, 0, 0, 3}, put(AtomicRequestLen, odd)[:4])
}

// A FetchAdd is sent with the compare fields that the RFC requires, whatever the struct contains; a
// received one is returned unchanged.
func TestAtomicRequestFetchAddCompare(t *testing.T) {
	r := vectorFetchAdd
	r.Compare, r.CompareMask = 1, 2
	b := put(AtomicRequestLen, r)
	require.Equal(t, put(AtomicRequestLen, vectorFetchAdd), b)
	require.EqualValues(t, 1, r.Compare)

	b[43], b[51] = 7, 8
	got, err := ParseAtomicRequest(b)
	require.NoError(t, err)
	require.EqualValues(t, 7, got.Compare)
	require.Equal(t, ^uint64(0)&^0xff|8, got.CompareMask)
}

func TestAtomicRequestRoundTrip(t *testing.T) {
	require.NoError(t, quick.Check(func(r AtomicRequest) bool {
		if r.Op &= atomicOpMask; r.Op == AtomicFetchAdd {
			r.Compare, r.CompareMask = 0, ^uint64(0)
		}
		got, err := ParseAtomicRequest(put(AtomicRequestLen, r))
		return err == nil && got == r
	}, nil))
}

func FuzzAtomicRequest(f *testing.F) {
	for _, v := range atomicRequestVectors {
		f.Add(put(AtomicRequestLen, v.request))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseAtomicRequest(b)
		if len(b) < AtomicRequestLen {
			require.Equal(t, io.ErrUnexpectedEOF, err)
			return
		}
		require.NoError(t, err)
		require.LessOrEqual(t, r.Op, AtomicOp(15))
		want := append([]byte{0, 0, 0, b[3] & 0x0f}, b[4:AtomicRequestLen]...)
		if r.Op == AtomicFetchAdd {
			clear(want[36:44])
			copy(want[44:], "\xff\xff\xff\xff\xff\xff\xff\xff")
		}
		require.Equal(t, want, put(AtomicRequestLen, r))
	})
}
