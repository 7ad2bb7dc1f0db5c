// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Every vector over the wire: the peer's memory holds the computed result, and the original value
// is returned.
func TestVectorsOverTheWire(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{})
	const guard = 0x5ca1ab1e0ddba11
	b.setWord(0, guard)
	b.setWord(2, guard)
	check := func(name string, wr verbs.SendWR, opcode verbs.WCOpcode, orig, want uint64) {
		b.setWord(1, orig)
		a.setWord(0, ^orig)
		wc := a.do(t, wr)
		require.NoError(t, wc.Err(), name)
		require.Equal(t, opcode, wc.Opcode, name)
		require.EqualValues(t, 8, wc.ByteLen, name)
		require.Equal(t, want, b.word(1), name)
		require.Equal(t, orig, a.word(0), name)
	}
	for _, v := range fetchAddVectors {
		check(v.name, ext.MaskedFetchAddWR(b.there(1), v.add, v.mask, a.sink(t, 0)...), verbs.WCMaskedFetchAdd, v.orig,
			v.want)
		check(v.name+", without mask", ext.FetchAddWR(b.there(1), v.add, a.sink(t, 0)...), verbs.WCFetchAdd, v.orig,
			v.orig+v.add)
	}
	for _, v := range cmpSwapVectors {
		wr := ext.MaskedCmpSwapWR(b.there(1), v.compare, v.compareMask, v.swap, v.swapMask, a.sink(t, 0)...)
		check(v.name, wr, verbs.WCMaskedCompSwap, v.orig, v.want)
		check(v.name+", without masks", ext.CmpSwapWR(b.there(1), v.compare, v.swap, a.sink(t, 0)...), verbs.WCCompSwap,
			v.orig, ext.MaskedCmpSwap(v.orig, v.compare, ones, v.swap, ones))
	}
	require.EqualValues(t, guard, b.word(0), "the word before the target")
	require.EqualValues(t, guard, b.word(2), "the word after the target")
}

func TestImmediatesOverTheWire(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{})
	recvs := make([]verbs.RecvWR, 3)
	n, err := b.QP.PostRecv(recvs)
	require.NoError(t, err)
	require.Equal(t, len(recvs), n)

	const imm = 0x0123456789abcdef
	require.NoError(t, b.RecvCQ.ReqNotify(true))
	for _, wr := range []verbs.SendWR{ext.ImmDataWR(imm), ext.ImmDataSEWR(imm)} {
		sent := a.do(t, wr)
		require.NoError(t, sent.Err())
		require.Equal(t, verbs.WCImmData, sent.Opcode)
		wc := one(t, b.RecvCQ)
		require.NoError(t, wc.Err())
		require.Equal(t, verbs.WCRecvImmData, wc.Opcode)
		require.Equal(t, verbs.WCWithImm, wc.Flags)
		require.EqualValues(t, imm, wc.Imm64)
		require.EqualValues(t, 0x01234567, wc.Imm)
		require.EqualValues(t, 8, wc.ByteLen)
	}

	a.setWord(3, 0xfeed)
	wrs := ext.WriteImm64WRs(b.there(5), imm, a.sink(t, 3)...)
	sent := a.do(t, wrs[:]...)
	require.NoError(t, sent.Err())
	require.Equal(t, verbs.WCRDMAWrite, sent.Opcode)
	sent = one(t, a.SendCQ)
	require.NoError(t, sent.Err())
	require.Equal(t, verbs.WCImmData, sent.Opcode)
	wc := one(t, b.RecvCQ)
	require.NoError(t, wc.Err())
	require.Equal(t, verbs.WCRecvRDMAWithImm, wc.Opcode)
	require.EqualValues(t, imm, wc.Imm64)
	require.EqualValues(t, 8, wc.ByteLen)
	require.EqualValues(t, 0xfeed, b.word(5))

	// No receives are left, so the peer has none for the fourth message.
	a.do(t, ext.ImmDataWR(imm))
	<-a.ID.Done()
	require.ErrorIs(t, a.QP.Err(), &verbs.TerminateError{Layer: 1, Type: 2, Code: 2, Remote: true})
}

// A misaligned target is refused and left unchanged.
func TestMisalignedTarget(t *testing.T) {
	a, b := pair(t, usiw.Config{}, usiw.Config{})
	b.setWord(0, 1)
	b.setWord(1, 2)
	wc := a.do(t, ext.MaskedFetchAddWR(verbs.Remote{Addr: b.addr(0) + 4, Length: 8, RKey: b.MR.RKey()}, 1, 0,
		a.sink(t, 0)...))
	require.ErrorIs(t, wc.Err(), verbs.WCRemInvReqErr)
	require.ErrorIs(t, a.QP.Err(), &verbs.TerminateError{Layer: 0, Type: 2, Code: 7, Remote: true})
	require.EqualValues(t, 1, b.word(0))
	require.EqualValues(t, 2, b.word(1))
}
