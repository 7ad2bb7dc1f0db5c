// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

const ones = ^uint64(0)

var fetchAddVectors = []struct {
	name                  string
	orig, add, mask, want uint64
}{
	{"F1 plain", 5, 3, 0, 8},
	{"F2 add 0", 0x123456789abcdef0, 0, 0, 0x123456789abcdef0},
	{"F3 wrap", ones, 1, 0, 0},
	{"F4 mask of bit 63 is plain", ones, 2, 0x8000000000000000, 1},
	{"F5 2x32, low carry dropped", 0x00000001ffffffff, 0x0000000100000001, 0x8000000080000000, 0x0000000200000000},
	{"F6 as F5, carry kept", 0x00000001ffffffff, 0x0000000100000001, 0, 0x0000000300000000},
	{"F7 4x16", 0xffff7fff8000ffff, 0x0001000180000001, 0x8000800080008000, 0x0000800000000000},
	{"F8 8x8", 0xff01807f00fffe10, 0x01ff800100ff02f0, 0x8080808080808080, 0x0000008000fe0000},
	{"F9 all ones is XOR", 0xdeadbeefcafef00d, ones, ones, 0x2152411035010ff2},
	{"F10 low 16 and upper 48", 0x0000ffffffffffff, 1, 0x8000, 0x0000ffffffff0000},
	{"F11 subtract 1", 0x10, ones, 0, 0xf},
	{"F12 field of one bit", 1, 1, 1, 0},
}

var cmpSwapVectors = []struct {
	name                                       string
	orig, compare, compareMask, swap, swapMask uint64
	want                                       uint64
}{
	{"C1 match", 5, 5, ones, 9, ones, 9},
	{"C2 miss", 6, 5, ones, 9, ones, 6},
	{"C3 no compare mask is a swap", 0x1122334455667788, 0xabcdef, 0, 0xa5a5a5a5a5a5a5a5, ones, 0xa5a5a5a5a5a5a5a5},
	{"C4 compare low, swap high", 0x11223344aabbccdd, 0xaabbccdd, 0xffffffff, 0xdeadbeef00000000, 0xffffffff00000000,
		0xdeadbeefaabbccdd},
	{"C5 difference outside the mask", 0xff00000000000001, 1, 0x00ffffffffffffff, 2, ones, 2},
	{"C6 one masked bit differs", 0x8000000000000000, 0, 0x8000000000000000, ones, ones, 0x8000000000000000},
	{"C7 no swap mask", 0x0123456789abcdef, 0x0123456789abcdef, ones, ones, 0, 0x0123456789abcdef},
	{"C8 swap bits outside the mask", 0xf0, 0xf0, 0xff, ones, 0x0f, 0xff},
	{"C9 take a lock bit", 0x1234, 0, 0x8000000000000000, 0x8000000000000000, 0x8000000000000000, 0x8000000000001234},
	{"C10 lock bit is taken", 0x8000000000001234, 0, 0x8000000000000000, 0x8000000000000000, 0x8000000000000000,
		0x8000000000001234},
	{"C11 compare bits outside the mask", 0xaa, 0xffffffffffffffaa, 0xff, 0x55, 0xff, 0x55},
	{"C12 no mask at all is a read", 0xcafebabe00c0ffee, 1, 0, 2, 0, 0xcafebabe00c0ffee},
}

func TestMaskedFetchAdd(t *testing.T) {
	for _, v := range fetchAddVectors {
		require.Equal(t, v.want, ext.MaskedFetchAdd(v.orig, v.add, v.mask), v.name)
	}
	require.NoError(t, quick.Check(func(orig, add uint64) bool {
		return ext.MaskedFetchAdd(orig, add, 0) == orig+add && ext.MaskedFetchAdd(orig, add, ones) == orig^add
	}, nil))
}

func TestMaskedCmpSwap(t *testing.T) {
	for _, v := range cmpSwapVectors {
		require.Equal(t, v.want, ext.MaskedCmpSwap(v.orig, v.compare, v.compareMask, v.swap, v.swapMask), v.name)
	}
	require.NoError(t, quick.Check(func(orig, swap, swapMask uint64) bool {
		return ext.MaskedCmpSwap(orig, orig, ones, swap, ones) == swap &&
			ext.MaskedCmpSwap(orig, ^orig, ones, swap, ones) == orig &&
			ext.MaskedCmpSwap(orig, 0, 0, swap, swapMask) == orig&^swapMask|swap&swapMask
	}, nil))
}

func TestFieldMask(t *testing.T) {
	for _, c := range []struct {
		widths []int
		want   uint64
	}{
		{nil, 0},
		{[]int{64}, 1 << 63},
		{[]int{16}, 1 << 15},
		{[]int{32, 32}, 0x8000000080000000},
		{[]int{32, 16, 16}, 0x8000800080000000},
		{[]int{1, 63}, 0x8000000000000001},
		{[]int{8, 8, 8, 8, 8, 8, 8, 8}, 0x8080808080808080},
	} {
		mask, err := ext.FieldMask(c.widths...)
		require.NoError(t, err, "%v", c.widths)
		require.Equal(t, c.want, mask, "%v", c.widths)
	}
	for _, widths := range [][]int{{0}, {-1}, {65}, {32, 33}, {64, 1}, {1 << 62, 1 << 62}} {
		mask, err := ext.FieldMask(widths...)
		require.ErrorIs(t, err, verbs.ErrInvalid, "%v", widths)
		require.Zero(t, mask)
	}
	_, err := ext.FieldMask(60, 5)
	require.ErrorContains(t, err, "field 1 is 5 bits wide, of 4 that are left")
}

// Fields separated by a mask are added as independent integers.
func TestFieldMaskSeparates(t *testing.T) {
	mask, err := ext.FieldMask(32, 16, 16)
	require.NoError(t, err)
	require.NoError(t, quick.Check(func(a, b uint64) bool {
		sum := ext.MaskedFetchAdd(a, b, mask)
		return uint32(sum) == uint32(a)+uint32(b) && uint16(sum>>32) == uint16(a>>32)+uint16(b>>32) &&
			uint16(sum>>48) == uint16(a>>48)+uint16(b>>48)
	}, nil))
}

func TestAtomicRequests(t *testing.T) {
	sink := verbs.SGE{Addr: 1, Length: 8, LKey: 2}
	at := verbs.Remote{Addr: 3, Length: 8, RKey: 4}
	require.Equal(t, verbs.FetchAdd(at, 5, sink), ext.FetchAddWR(at, 5, sink))
	require.Equal(t, verbs.CmpSwap(at, 5, 6, sink), ext.CmpSwapWR(at, 5, 6, sink))
	masked := verbs.FetchAdd(at, 5, sink)
	masked.Opcode, masked.AddMask = verbs.WRMaskedAtomicFetchAndAdd, 6
	require.Equal(t, masked, ext.MaskedFetchAddWR(at, 5, 6, sink))
	masked = verbs.CmpSwap(at, 5, 7, sink)
	masked.Opcode, masked.CompareMask, masked.SwapMask = verbs.WRMaskedAtomicCmpAndSwp, 6, 8
	require.Equal(t, masked, ext.MaskedCmpSwapWR(at, 5, 6, 7, 8, sink))
}

func TestBuildersAllocateNothing(t *testing.T) {
	sink := []verbs.SGE{{Length: 8}}
	at := verbs.Remote{Addr: 3, Length: 8, RKey: 4}
	wrs := make([]verbs.SendWR, 6)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		wrs[0] = ext.MaskedFetchAddWR(at, 5, 6, sink...)
		wrs[1] = ext.MaskedCmpSwapWR(at, 5, 6, 7, 8, sink...)
		wrs[2] = ext.ImmDataSEWR(1)
		write := ext.WriteImm64WRs(at, 5, sink...)
		copy(wrs[3:], write[:])
	}))
}

// TestOneRule: all constructors, here and in package verbs, return signalled requests, and those
// that exceed the peer's memory are refused before they are posted.
func TestOneRule(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{})
	sge := a.sink(t, 0)[0]
	for _, wr := range []verbs.SendWR{verbs.Send(sge), verbs.SendImm(1, sge), verbs.SendInv(1, sge), ext.ImmDataWR(1),
		ext.ImmDataSEWR(1)} {
		require.NotZero(t, wr.Flags&verbs.SendSignaled, wr.Opcode)
	}
	for name, build := range map[string]func(at verbs.Remote) []verbs.SendWR{
		"Write":    func(at verbs.Remote) []verbs.SendWR { return []verbs.SendWR{verbs.Write(at, sge)} },
		"WriteImm": func(at verbs.Remote) []verbs.SendWR { return []verbs.SendWR{verbs.WriteImm(at, 1, sge)} },
		"Read":     func(at verbs.Remote) []verbs.SendWR { return []verbs.SendWR{verbs.Read(at, sge)} },
		"FetchAdd": func(at verbs.Remote) []verbs.SendWR { return []verbs.SendWR{verbs.FetchAdd(at, 1, sge)} },
		"CmpSwap": func(at verbs.Remote) []verbs.SendWR {
			return []verbs.SendWR{verbs.CmpSwap(at, 1, 2,
				sge)}
		},
		"FetchAddWR": func(at verbs.Remote) []verbs.SendWR { return []verbs.SendWR{ext.FetchAddWR(at, 1, sge)} },
		"MaskedFetchAddWR": func(at verbs.Remote) []verbs.SendWR {
			return []verbs.SendWR{ext.MaskedFetchAddWR(at, 1, 2,
				sge)}
		},
		"CmpSwapWR": func(at verbs.Remote) []verbs.SendWR {
			return []verbs.SendWR{ext.CmpSwapWR(at, 1, 2,
				sge)}
		},
		"MaskedCmpSwapWR": func(at verbs.Remote) []verbs.SendWR {
			return []verbs.SendWR{ext.MaskedCmpSwapWR(at, 1, 2, 3, 4, sge)}
		},
		"WriteImm64WRs": func(at verbs.Remote) []verbs.SendWR {
			two := ext.WriteImm64WRs(at, 1, sge)
			return two[:]
		},
	} {
		for n := range uint64(8) {
			posted, err := a.QP.PostSend(build(verbs.Remote{Addr: b.addr(0), Length: n, RKey: b.MR.RKey()}))
			require.Zero(t, posted, name)
			require.ErrorIs(t, err, verbs.ErrBounds, name)
		}
		for _, wr := range build(b.there(0)) {
			require.NotZero(t, wr.Flags&verbs.SendSignaled, name)
		}
		if name == "WriteImm" || name == "WriteImm64WRs" {
			_, err := b.QP.PostRecv([]verbs.RecvWR{{}})
			require.NoError(t, err)
		}
		list := build(b.there(0))
		n, err := a.QP.PostSend(list)
		require.NoError(t, err, name)
		for range n {
			done := one(t, a.SendCQ)
			require.NoError(t, done.Err(), name)
		}
	}
}
