// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// The kernel's siw with the module of kernel/siw-7306, seen by a raw peer: RFC 7306 in the
// responder role, and what the module repairs. kernel/siw-7306/in-guest loads the module and sets
// the variable.

// moduleVariable is the variable with the path of the module, if siw is the module.
const moduleVariable = "GOVERBS_TEST_SIW7306"

func withModule() bool { return os.Getenv(moduleVariable) != "" }

func needModule(t *testing.T) {
	t.Helper()
	if !withModule() {
		t.Skip("for siw with RFC 7306: kernel/siw-7306/in-guest")
	}
	needKernel(t)
}

// allRights are rights plus atomics.
const allRights = rights | verbs.AccessRemoteAtomic

// atomicRequest returns an Atomic Request.
func atomicRequest(msn uint32, ar rdmap.AtomicRequest) []byte {
	b := make([]byte, rdmap.AtomicRequestLen)
	ar.Put(b)
	return untagged(rdmap.OpAtomicRequest, ddp.QNReadRequest, msn, b...)
}

// fetchAdd returns a FetchAdd of 1 at an address.
func fetchAdd(msn uint32, stag uint32, at uint64) []byte {
	return atomicRequest(msn,
		rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd, ID: 7, STag: stag, TO: at, AddSwap: 1, CompareMask: ^uint64(0)})
}

// answer reads an Atomic Response.
func (r *raw) answer(msn uint32) rdmap.AtomicResponse {
	r.t.Helper()
	h, body := r.readOp(rdmap.OpAtomicResponse)
	require.Equal(r.t, ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpAtomicResponse), QN: ddp.QNAtomicResponse,
		MSN: msn}, h)
	res, err := rdmap.ParseAtomicResponse(body)
	require.NoError(r.t, err)
	return res
}

// terminates reads a Terminate with these codes in the RFC's layout, byte for byte, and the end of
// the stream. ulpdu is what it quotes, nil = nothing: the DDP header, or all of a Read that failed
// its protection check.
func (r *raw) terminates(layer, typ, code uint8, ulpdu []byte) {
	r.t.Helper()
	want := rdmap.Terminate{Layer: layer, Type: typ, Code: code}
	if ulpdu != nil {
		n := ddp.UntaggedLen
		if ddp.IsTagged(ulpdu[0]) {
			n = ddp.TaggedLen
		}
		want.SegLenValid, want.SegLen, want.DDPHeader = true, uint16(len(ulpdu)), ulpdu[:n]
		if ulpdu[1]&0xf == uint8(rdmap.OpReadRequest) && layer == 0 && typ == 1 {
			want.RDMAPHeader = ulpdu[n:]
		}
	}
	h, body := r.readOp(rdmap.OpTerminate)
	require.Equal(r.t, ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpTerminate), QN: ddp.QNTerminate, MSN: 1}, h)
	require.Equal(r.t, want.Append(nil), body)
	r.gone()
}

// TestModuleAtomics: every operation with every mask, compared with the user-space RNIC's
// computation.
func TestModuleAtomics(t *testing.T) {
	needModule(t)
	values := []uint64{0, 1, ^uint64(0), 0x00000001ffffffff, 0xffff7fff8000ffff, 0x8000000000001234, 0x0102030405060708}
	masks := []uint64{0, ^uint64(0), 1 << 63, 0x8000000080000000, 0x8080808080808080, 0x0000000000008000}
	r, k := here.toKernel(t, depth(4, 4), nil)
	mr := k.region(k.pd, 64, allRights)
	word := mr.Bytes()[16:24]
	msn := uint32(0)
	run := func(ar rdmap.AtomicRequest, old, want uint64) {
		msn++
		ar.ID, ar.STag, ar.TO = 1000+msn, mr.RKey(), mr.Addr()+16
		binary.NativeEndian.PutUint64(word, old)
		u := atomicRequest(msn, ar)
		u[ddp.UntaggedLen] = 0xf0 // reserved bits
		r.send(u)
		require.Equal(t, rdmap.AtomicResponse{ID: ar.ID, Value: old}, r.answer(msn))
		require.Equal(t, want, binary.NativeEndian.Uint64(word), "%+v of %#x", ar, old)
	}
	for _, old := range values {
		for _, v := range values {
			for _, m := range masks {
				run(rdmap.AtomicRequest{Op: rdmap.AtomicFetchAdd, AddSwap: v, AddSwapMask: m}, old,
					rdmap.FetchAdd(old, v, m))
				for _, swap := range []uint64{0xffff00ffffffff00, ^uint64(0)} {
					run(rdmap.AtomicRequest{Op: rdmap.AtomicCmpSwap, Compare: v, CompareMask: m, AddSwap: ^v,
						AddSwapMask: swap}, old, rdmap.CmpSwap(old, v, m, ^v, swap))
				}
			}
		}
	}
	require.Equal(t, make([]byte, 16), mr.Bytes()[:16])
	require.Equal(t, make([]byte, 40), mr.Bytes()[24:])
}

// TestModuleOrder: Reads and atomics share message numbers and are answered in the order of the
// requests.
func TestModuleOrder(t *testing.T) {
	needModule(t)
	r, k := here.toKernel(t, depth(8, 4), nil)
	mr := k.region(k.pd, 1<<16, allRights)
	read := func(msn uint32, n int) []byte {
		return readRequest(msn, rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: uint32(n), SrcSTag: mr.RKey(),
			SrcTO: mr.Addr()})
	}
	r.send(read(1, 8), fetchAdd(2, mr.RKey(), mr.Addr()), read(3, 0), fetchAdd(4, mr.RKey(), mr.Addr()), read(5, 8))
	require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000), r.read()[:ddp.TaggedLen])
	require.Equal(t, uint64(0), r.answer(1).Value)
	require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000), r.read())
	require.Equal(t, uint64(1), r.answer(2).Value)
	var two [8]byte
	binary.NativeEndian.PutUint64(two[:], 2)
	require.Equal(t, tagged(rdmap.OpReadResponse, true, 0x100, 0x2000, two[:]...), r.read())
}

// TestModulePieces: one byte in every TCP segment, with CRC.
func TestModulePieces(t *testing.T) {
	needModule(t)
	r, k := here.toKernel(t, depth(4, 4), func(k *side) { k.recv(1, k.sgl(0, 64)) })
	mr := k.region(k.pd, 64, allRights)
	require.NoError(t, r.conn.(*net.TCPConn).SetNoDelay(true))
	for _, u := range [][]byte{fetchAdd(1, mr.RKey(), mr.Addr()),
		untagged(rdmap.OpSend, ddp.QNSend, 1, 1, 2, 3, 4, 5)} {
		for _, b := range r.fpdu(u) {
			r.write([]byte{b})
		}
	}
	require.Equal(t, rdmap.AtomicResponse{ID: 7}, r.answer(1))
	k.ok(k.received(), verbs.WCRecv)
}

// TestModuleImmediate: an immediate completes one receive and places nothing.
func TestModuleImmediate(t *testing.T) {
	needModule(t)
	r, k := here.toKernel(t, depth(4, 4), func(k *side) {
		k.recv(1, k.sgl(0, 64))
		k.recv(2, k.sgl(0, 64))
		k.recv(3, k.sgl(0, 64))
	})
	r.send(untagged(rdmap.OpImmediate, ddp.QNSend, 1, 1, 2, 3, 4, 5, 6, 7, 8),
		untagged(rdmap.OpImmediateSE, ddp.QNSend, 2, 1, 2, 3, 4, 5, 6, 7, 8), untagged(rdmap.OpSend, ddp.QNSend, 3, 9))
	for id := uint64(1); id <= 2; id++ {
		wc := k.received()
		require.Equal(t, verbs.WCSuccess, wc.Status)
		require.Equal(t, id, wc.ID)
		require.EqualValues(t, 8, wc.ByteLen)
	}
	k.ok(k.received(), verbs.WCRecv)
	want := make([]byte, 64)
	want[0] = 9
	require.Equal(t, want, k.mem.Bytes()[:64])
}

// TestModuleBehindWrite: an immediate belongs to the RDMA Write directly before it. The empty
// Writes without a key that wake a peer do not count, either as separators or as the Write.
func TestModuleBehindWrite(t *testing.T) {
	needModule(t)
	const receives = 7
	r, k := here.toKernel(t, depth(4, 4), func(k *side) {
		for id := range uint64(receives) {
			k.recv(id, k.sgl(0, 64))
		}
	})
	mr := k.region(k.pd, 64, allRights)
	msn := uint32(0)
	nudge := tagged(rdmap.OpWrite, true, 1, 0)
	write := func(n int) []byte { return tagged(rdmap.OpWrite, true, mr.RKey(), mr.Addr(), make([]byte, n)...) }
	message := func(op rdmap.Opcode) []byte {
		msn++
		return untagged(op, ddp.QNSend, msn, 1, 2, 3, 4, 5, 6, 7, 8)
	}
	immediate := func() []byte { return message(rdmap.OpImmediate) }
	r.send(nudge, immediate(),
		write(20), nudge, immediate(),
		nudge, immediate(),
		write(0), nudge, nudge, immediate(),
		write(9), message(rdmap.OpSend), nudge, immediate(),
		write(30), immediate())
	for i, want := range []struct {
		op  verbs.WCOpcode
		len int
	}{{verbs.WCRecvImmData, 8}, {verbs.WCRecvRDMAWithImm, 20}, {verbs.WCRecvImmData, 8}, {verbs.WCRecvRDMAWithImm, 0},
		{verbs.WCRecv, 8}, {verbs.WCRecvImmData, 8}, {verbs.WCRecvRDMAWithImm, 30}} {
		wc := k.ok(k.received(), want.op)
		require.EqualValues(t, want.len, wc.ByteLen, i)
	}
}

// TestModuleRefuses: messages that RFC 7306 forbids. The memory is unchanged.
func TestModuleRefuses(t *testing.T) {
	needModule(t)
	type fault struct {
		name             string
		layer, typ, code uint8
		quotes           bool
		ulpdu            func(k *side, mr *verbs.MR) []byte
	}
	at := func(off int64) func(k *side, mr *verbs.MR) []byte {
		return func(_ *side, mr *verbs.MR) []byte { return fetchAdd(1, mr.RKey(), mr.Addr()+uint64(off)) }
	}
	in := func(access verbs.AccessFlags, foreign bool) func(k *side, mr *verbs.MR) []byte {
		return func(k *side, _ *verbs.MR) []byte {
			pd := k.pd
			if foreign {
				pd = k.foreignPD()
			}
			other := k.region(pd, 64, access)
			return fetchAdd(1, other.RKey(), other.Addr())
		}
	}
	changed := func(at int, v byte) func(k *side, mr *verbs.MR) []byte {
		return func(_ *side, mr *verbs.MR) []byte { return with(fetchAdd(1, mr.RKey(), mr.Addr()), at, v) }
	}
	cut := func(n int) func(k *side, mr *verbs.MR) []byte {
		return func(_ *side, mr *verbs.MR) []byte {
			return append(fetchAdd(1, mr.RKey(), mr.Addr()), 0, 0, 0, 0, 0)[:ddp.UntaggedLen+rdmap.AtomicRequestLen+n]
		}
	}
	message := func(u []byte) func(k *side, mr *verbs.MR) []byte {
		return func(*side, *verbs.MR) []byte { return u }
	}
	eight := make([]byte, 8)
	for _, f := range []fault{
		{"not aligned", 0, 2, 7, true, at(4)},
		{"bounds, in front", 0, 1, 1, true, at(-8)},
		{"bounds, behind", 0, 1, 1, true, at(64)},
		{"bounds, half behind", 0, 1, 1, true, at(60)},
		{"wrap", 0, 1, 4, true, func(_ *side, mr *verbs.MR) []byte { return fetchAdd(1, mr.RKey(), ^uint64(7)) }},
		{"old key", 0, 1, 0, true, func(_ *side, mr *verbs.MR) []byte { return fetchAdd(1, mr.RKey()^1, mr.Addr()) }},
		{"unknown key", 0, 1, 0, true,
			func(_ *side, mr *verbs.MR) []byte { return fetchAdd(1, 0x5a5a5a00, mr.Addr()) }},
		{"no right", 0, 1, 2, true, in(rights, false)},
		{"foreign PD", 0, 1, 3, true, in(allRights, true)},
		{"AOpCode 1", 0, 2, 6, true, changed(ddp.UntaggedLen+3, 1)},
		{"AOpCode 15", 0, 2, 6, true, changed(ddp.UntaggedLen+3, 15)},
		{"QN 4", 1, 2, 1, true, changed(9, 4)},
		{"QN 0", 0, 2, 6, true, changed(9, 0)},
		{"MSN", 1, 2, 3, true, changed(13, 2)},
		{"MO", 1, 2, 4, true, changed(17, 8)},
		{"L clear", 1, 2, 4, true, changed(0, 0x01)},
		{"T set", 0, 2, 6, true, changed(0, 0xc1)},
		{"DDP version", 1, 2, 6, false, changed(0, 0x42)},
		{"RDMAP version", 0, 2, 5, false, changed(1, 0x0a)},
		{"too long", 1, 2, 5, true, cut(5)},
		{"too short", 0, 2, 7, true, cut(-1)},
		{"without header", 0, 2, 7, true, cut(-rdmap.AtomicRequestLen)},
		{"without DDP header", 2, 0, 3, false, cut(-rdmap.AtomicRequestLen - 1)},
		{"answer that nobody asked for", 1, 2, 2, true,
			message(untagged(rdmap.OpAtomicResponse, ddp.QNAtomicResponse, 1, make([]byte, 12)...))},
		{"immediate, no receive", 1, 2, 2, true, message(untagged(rdmap.OpImmediate, ddp.QNSend, 1, eight...))},
		{"immediate, too long", 1, 2, 5, true, message(untagged(rdmap.OpImmediate, ddp.QNSend, 1, make([]byte, 9)...))},
		{"immediate, too short", 0, 2, 7, true,
			message(untagged(rdmap.OpImmediateSE, ddp.QNSend, 1, make([]byte, 7)...))},
		{"immediate, MSN", 1, 2, 3, true, message(untagged(rdmap.OpImmediate, ddp.QNSend, 0, eight...))},
		{"immediate, QN 1", 0, 2, 6, true, message(untagged(rdmap.OpImmediate, ddp.QNReadRequest, 1, eight...))},
		{"opcode 12", 0, 2, 6, false, message(untagged(12, ddp.QNSend, 1, eight...))},
		{"Send, MSN", 1, 2, 3, true, message(untagged(rdmap.OpSend, ddp.QNSend, 0, eight...))},
		{"Read, no right", 0, 1, 2, true, func(k *side, _ *verbs.MR) []byte {
			mr := k.region(k.pd, 64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
			return readRequest(1, rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: 8, SrcSTag: mr.RKey(),
				SrcTO: mr.Addr()})
		}},
		{"Read, wrap", 0, 1, 1, true, func(_ *side, mr *verbs.MR) []byte {
			return readRequest(1, rdmap.ReadRequest{SinkSTag: 0x100, SinkTO: 0x2000, Size: 64, SrcSTag: mr.RKey(),
				SrcTO: ^uint64(31)})
		}},
		{"Read, shorter than its header", 2, 0, 3, false,
			message(untagged(rdmap.OpReadRequest, ddp.QNReadRequest, 1, eight...))},
		{"Write, T clear", 0, 2, 6, false, message(untagged(rdmap.OpWrite, ddp.QNSend, 1, eight...))},
	} {
		t.Run(f.name, func(t *testing.T) {
			r, k := here.toKernel(t, depth(4, 4), func(k *side) {
				if f.name == "Send, MSN" {
					k.recv(1, k.sgl(0, 64))
				}
			})
			mr := k.region(k.pd, 64, allRights)
			fill(mr.Bytes(), 1)
			want := append([]byte(nil), mr.Bytes()...)
			u := f.ulpdu(k, mr)
			r.send(u)
			if !f.quotes {
				u = nil
			}
			r.terminates(f.layer, f.typ, f.code, u)
			require.Error(t, k.ended())
			require.Equal(t, want, mr.Bytes())
		})
	}
	t.Run("CRC", func(t *testing.T) {
		r, k := here.toKernel(t, depth(4, 4), nil)
		mr := k.region(k.pd, 64, allRights)
		b := r.fpdu(fetchAdd(1, mr.RKey(), mr.Addr()))
		b[len(b)-1] ^= 1
		r.write(b)
		r.terminates(2, 0, mpa.ErrCodeCRC, nil)
		require.Equal(t, make([]byte, 64), mr.Bytes())
	})
}

// TestModuleListener: connections that are closed before siw has accepted them do not destroy the
// listener.
func TestModuleListener(t *testing.T) {
	needModule(t)
	k := kernelSide(t, 4096)
	address := k.listen(kernelHost).Addr().String()
	for i := range 300 {
		conn, err := net.DialTimeout("tcp", address, waitLimit)
		require.NoError(t, err, "connection %d", i)
		require.NoError(t, conn.Close())
	}
}

// TestModuleEarlyEnd: a peer-to-peer connection ends before its first message, because it is closed
// or because that message is invalid. The program sees a connection and its end.
func TestModuleEarlyEnd(t *testing.T) {
	needModule(t)
	for _, wrong := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrong message: %v", wrong), func(t *testing.T) {
			k := kernelSide(t, 4096)
			ln := k.listen(kernelHost)
			k.open()
			r := here.dial(t, ln.Addr().String())
			r.write(request(flagS, mpa.Rev2, word(0x8000|16, 0x8000|16)...))
			req, err := ln.Accept(soon(t))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() {
				var err error
				k.id, err = req.Accept(soon(t), k.qp, depth(4, 4))
				done <- err
			}()
			r.frame()
			if wrong {
				r.send(untagged(12, 0, 1))
				r.terminates(0, 2, 6, nil)
			}
			require.NoError(t, r.conn.Close())
			if result(t, "Accept", done) == nil {
				result(t, "the end of the connection", k.id.Done())
				require.NoError(t, k.id.Close())
			}
		})
	}
}

// TestModuleReplyWithoutWord: a Reply without all of the enhanced word fails the connection.
func TestModuleReplyWithoutWord(t *testing.T) {
	needModule(t)
	for n := range 4 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r, _, _, connected := here.fromKernel(t, depth(4, 4))
			r.write(reply(flagS, mpa.Rev2, make([]byte, n)...))
			require.Error(t, result(t, "Connect", connected))
		})
	}
}

// TestModulePrivateData: a program never gets incomplete private data. Replies announce too much,
// end in the middle of it, or reject with less than the enhanced word.
func TestModulePrivateData(t *testing.T) {
	needModule(t)
	announced := func(frame []byte, n uint16) []byte {
		binary.BigEndian.PutUint16(frame[18:], n)
		return frame
	}
	for name, frame := range map[string][]byte{
		"too many":      announced(reply(flagS, mpa.Rev2), 2<<8+38),
		"the middle":    announced(reply(flagS, mpa.Rev2, word(4, 4, 1, 2, 3)...), 38),
		"none":          announced(reply(flagS, mpa.Rev2), 38),
		"half a word":   reply(flagR|flagS, mpa.Rev2, 0, 4),
		"more than all": append(reply(flagR|flagS, mpa.Rev2, word(4, 4, 1)...), 2, 3),
	} {
		t.Run(name, func(t *testing.T) {
			r, _, _, connected := here.fromKernel(t, depth(4, 4))
			r.write(frame)
			require.NoError(t, r.conn.Close())
			err := result(t, "Connect", connected)
			require.Error(t, err)
			if refused := new(cm.RejectedError); errors.As(err, &refused) {
				require.Empty(t, refused.PrivateData)
			}
		})
	}
}

// TestModuleContention: two user-space RNICs add to one word over separate connections, while the
// program on the kernel's side adds too. Nothing is lost. Their immediates arrive after what they
// have written.
func TestModuleContention(t *testing.T) {
	needModule(t)
	const each = 200
	links := []*link{here.link(t, linkConfig{memory: 4096}), here.link(t, linkConfig{memory: 4096, kernelActive: true})}
	first := links[0].kernel.region(links[0].kernel.pd, 64, allRights)
	second, err := links[1].kernel.pd.RegMR(first.Bytes(), allRights)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, second.Close()) })
	done := make(chan struct{})
	for i, mr := range []*verbs.MR{first, second} {
		go func() {
			defer func() { done <- struct{}{} }()
			u, last := links[i].user, uint64(0)
			for n := range each {
				wr := ext.FetchAddWR(mr.Remote(), 1, u.sgl(0, 8)...)
				if n%2 == 1 { // for which the processor has no instruction
					wr = ext.MaskedFetchAddWR(mr.Remote(), 1, 1<<31, u.sgl(0, 8)...)
				}
				wc := u.run(wr)
				if !assert.Equal(t, verbs.WCSuccess, wc.Status, "%v", u.qp.Err()) {
					return
				}
				old := binary.NativeEndian.Uint64(u.mem.Bytes())
				assert.True(t, n == 0 || old > last, "%d after %d", old, last)
				last = old
			}
		}()
	}
	for range each {
		regmem.FetchAdd(first.Bytes()[:8], 1, 0)
		runtime.Gosched()
	}
	<-done
	<-done
	require.EqualValues(t, 3*each, binary.NativeEndian.Uint64(first.Bytes()))

	for _, l := range links {
		l.kernel.recv(1, nil)
		fill(l.user.mem.Bytes(), 7)
		wrs := ext.WriteImm64WRs(l.kernel.mem.Remote(), 0x1122334455667788, l.user.sgl(0, 1000)...)
		l.user.post(wrs[:]...)
		require.Equal(t, verbs.WCSuccess, l.kernel.received().Status)
		require.Equal(t, l.user.mem.Bytes()[:1000], l.kernel.mem.Bytes()[:1000])
	}
}
