// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var someRemote = verbs.Remote{Addr: 0x0102030405060708, Length: 0x1112131415161718, RKey: 0x21222324}

func TestRemoteEncoding(t *testing.T) {
	want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24}
	require.Equal(t, want, someRemote.Append(nil))
	require.Equal(t, append([]byte("head"), want...), someRemote.Append([]byte("head")))
	for _, padding := range [][]byte{nil, {0}, make([]byte, 36), {255}} {
		got, err := verbs.ParseRemote(append(want[:verbs.RemoteLen:verbs.RemoteLen], padding...))
		require.NoError(t, err)
		require.Equal(t, someRemote, got)
	}
	for n := range want {
		_, err := verbs.ParseRemote(want[:n])
		require.ErrorIs(t, err, verbs.ErrInvalid, "%d bytes", n)
	}
	require.Equal(t, "4096 bytes at 0x1000, key 0x7", verbs.Remote{Addr: 4096, Length: 4096, RKey: 7}.String())
}

// TestRemoteWraps: memory does not go on at address 0.
func TestRemoteWraps(t *testing.T) {
	last := verbs.Remote{Addr: math.MaxUint64 - 9, Length: 9, RKey: 1}
	got, err := verbs.ParseRemote(last.Append(nil))
	require.NoError(t, err)
	require.Equal(t, last, got)
	got, err = verbs.ParseRemote(verbs.Remote{Addr: 5, RKey: 1}.Append(nil))
	require.NoError(t, err, "of no bytes")
	require.Zero(t, got.Length)
	last.Length++
	_, err = verbs.ParseRemote(last.Append(nil))
	require.ErrorIs(t, err, verbs.ErrInvalid)
	require.ErrorContains(t, err, "wraps around")
}

func TestRemoteSlice(t *testing.T) {
	r := verbs.Remote{Addr: 1000, Length: 100, RKey: 7}
	for _, c := range []struct {
		off, n int
		ok     bool
	}{{0, 100, true}, {0, 0, true}, {100, 0, true}, {99, 1, true}, {10, 20, true}, {0, 101, false}, {100, 1, false},
		{101, 0, false}, {-1, 1, false}, {1, -1, false}, {math.MaxInt, math.MaxInt, false}, {1, math.MaxInt, false},
		{math.MinInt, math.MinInt, false}} {
		got, err := r.Slice(c.off, c.n)
		if !c.ok {
			require.ErrorIs(t, err, verbs.ErrBounds, "%d, %d", c.off, c.n)
			require.Zero(t, got)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, verbs.Remote{Addr: 1000 + uint64(c.off), Length: uint64(c.n), RKey: 7}, got)
	}
	part, err := r.Slice(40, 50)
	require.NoError(t, err)
	_, err = part.Slice(0, 51)
	require.ErrorIs(t, err, verbs.ErrBounds, "the slice of a slice stays inside")
}

func FuzzParseRemote(f *testing.F) {
	f.Add(someRemote.Append(nil))
	f.Add(verbs.Remote{Addr: math.MaxUint64, Length: 1}.Append(nil))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := verbs.ParseRemote(b)
		if err != nil {
			require.ErrorIs(t, err, verbs.ErrInvalid)
			return
		}
		require.Equal(t, b[:verbs.RemoteLen], r.Append(nil))
	})
}

// TestRequests: each request has its opcode, is signalled, and names the memories.
func TestRequests(t *testing.T) {
	a, b := verbs.SGE{Addr: 1, Length: 2, LKey: 3}, verbs.SGE{Addr: 4, Length: 5, LKey: 6}
	list, r := []verbs.SGE{a, b}, verbs.Remote{Addr: 7, Length: 8, RKey: 9}
	for _, c := range []struct{ got, want verbs.SendWR }{
		{verbs.Send(a, b), verbs.SendWR{Opcode: verbs.WRSend, SGL: list}},
		{verbs.Send(), verbs.SendWR{Opcode: verbs.WRSend}},
		{verbs.SendImm(10, a, b), verbs.SendWR{Opcode: verbs.WRSendWithImm, SGL: list, Imm: 10}},
		{verbs.SendInv(10, a, b), verbs.SendWR{Opcode: verbs.WRSendWithInv, SGL: list, InvalidateRKey: 10}},
		{verbs.Write(r, a, b), verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: list, RemoteAddr: 7, RKey: 9}},
		{verbs.WriteImm(r, 10, a, b),
			verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, SGL: list, RemoteAddr: 7, RKey: 9, Imm: 10}},
		{verbs.Read(r, a, b), verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: list, RemoteAddr: 7, RKey: 9}},
		{verbs.FetchAdd(r, 10, list...),
			verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, SGL: list, RemoteAddr: 7, RKey: 9, Add: 10}},
		{verbs.CmpSwap(r, 10, 11, list...),
			verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, SGL: list, RemoteAddr: 7, RKey: 9, Compare: 10, Swap: 11}},
		{verbs.AtomicWrite(r, 10), verbs.SendWR{Opcode: verbs.WRAtomicWrite, RemoteAddr: 7, RKey: 9, Swap: 10}},
	} {
		c.want.Flags = verbs.SendSignaled
		require.EqualExportedValues(t, c.want, c.got)
	}
}

func TestRequestsAllocateNothing(t *testing.T) {
	list := []verbs.SGE{{Addr: 1, Length: 2, LKey: 3}}
	wrs := make([]verbs.SendWR, 2)
	require.Zero(t, testing.AllocsPerRun(100,
		func() { wrs[0], wrs[1] = verbs.Write(someRemote, list...), verbs.Send(list...) }))
}
