// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// The memory regions of both sides have the same layout. Requests go from A to B.
const (
	source  = 0        // data of A's Sends and Writes
	target  = 0        // destination of Writes at B
	part    = 16 << 10 // bytes of each part, and the most that a request moves
	sink    = 1 * part // destination of Reads at A
	readAt  = 1 * part // source of Reads at B
	word    = 2 * part // target of atomics at B, and their sink at A
	receive = 3 * part // B's receive
	window  = readAt   // range of B's memory window
)

// initially holds the initial contents of the memory regions of A and B.
var initially = func() (m [2][]byte) {
	for side := range m {
		m[side] = make([]byte, usiwtest.DefaultMem)
		for i := range m[side] {
			m[side][i] = byte(i*(7+4*side) + i>>8 + side)
		}
	}
	binary.NativeEndian.PutUint64(m[1][word:], 0x0807060504030201)
	return m
}()

// operation is one kind of request.
type operation struct {
	name string
	wr   verbs.SendWR
	wc   verbs.WCOpcode
	out  []rdmap.Opcode // messages that A sends for it
	back rdmap.Opcode   // B's response; rdmap.OpTerminate = none
	recv verbs.WCOpcode // B's completion; 0 = none
	data bool           // it carries data of any length
}

var operations = []operation{
	{name: "Send", wr: verbs.SendWR{Opcode: verbs.WRSend}, wc: verbs.WCSend,
		out: []rdmap.Opcode{rdmap.OpSend}, back: rdmap.OpTerminate, recv: verbs.WCRecv, data: true},
	{name: "Send solicited", wr: verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSolicited}, wc: verbs.WCSend,
		out: []rdmap.Opcode{rdmap.OpSendSE}, back: rdmap.OpTerminate, recv: verbs.WCRecv, data: true},
	{name: "Send with Invalidate", wr: verbs.SendWR{Opcode: verbs.WRSendWithInv}, wc: verbs.WCSend,
		out: []rdmap.Opcode{rdmap.OpSendInv}, back: rdmap.OpTerminate, recv: verbs.WCRecv, data: true},
	{name: "Send with Invalidate solicited", wr: verbs.SendWR{Opcode: verbs.WRSendWithInv, Flags: verbs.SendSolicited},
		wc: verbs.WCSend, out: []rdmap.Opcode{rdmap.OpSendSEInv}, back: rdmap.OpTerminate, recv: verbs.WCRecv,
		data: true},
	{name: "Write", wr: verbs.SendWR{Opcode: verbs.WRRDMAWrite}, wc: verbs.WCRDMAWrite,
		out: []rdmap.Opcode{rdmap.OpWrite}, back: rdmap.OpTerminate, data: true},
	{name: "Write with immediate", wr: verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 0x01020304},
		wc:  verbs.WCRDMAWrite,
		out: []rdmap.Opcode{rdmap.OpWrite, rdmap.OpImmediate}, back: rdmap.OpTerminate, recv: verbs.WCRecvRDMAWithImm,
		data: true},
	{name: "Write with immediate solicited",
		wr: verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Flags: verbs.SendSolicited, Imm: 5},
		wc: verbs.WCRDMAWrite, out: []rdmap.Opcode{rdmap.OpWrite, rdmap.OpImmediateSE}, back: rdmap.OpTerminate,
		recv: verbs.WCRecvRDMAWithImm, data: true},
	{name: "Immediate Data", wr: verbs.SendWR{Opcode: verbs.WRImmData, Imm64: 0x0102030405060708}, wc: verbs.WCImmData,
		out: []rdmap.Opcode{rdmap.OpImmediate}, back: rdmap.OpTerminate, recv: verbs.WCRecvImmData},
	{name: "Immediate Data solicited", wr: verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSolicited, Imm64: 7},
		wc: verbs.WCImmData, out: []rdmap.Opcode{rdmap.OpImmediateSE}, back: rdmap.OpTerminate,
		recv: verbs.WCRecvImmData},
	{name: "Read", wr: verbs.SendWR{Opcode: verbs.WRRDMARead}, wc: verbs.WCRDMARead,
		out: []rdmap.Opcode{rdmap.OpReadRequest}, back: rdmap.OpReadResponse, data: true},
	{name: "FetchAdd", wr: verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 0x1122334455667788},
		wc:  verbs.WCFetchAdd,
		out: []rdmap.Opcode{rdmap.OpAtomicRequest}, back: rdmap.OpAtomicResponse},
	{name: "masked FetchAdd",
		wr: verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: 0xffff0000ffff, AddMask: 1 << 31},
		wc: verbs.WCMaskedFetchAdd, out: []rdmap.Opcode{rdmap.OpAtomicRequest}, back: rdmap.OpAtomicResponse},
	{name: "CmpSwap", wr: verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: 0x0807060504030201,
		Swap: 0x9988776655443322},
		wc: verbs.WCCompSwap, out: []rdmap.Opcode{rdmap.OpAtomicRequest}, back: rdmap.OpAtomicResponse},
	{name: "masked CmpSwap", wr: verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: 0x01, CompareMask: 0xff,
		Swap: 0xabcd, SwapMask: 0xff00},
		wc: verbs.WCMaskedCompSwap, out: []rdmap.Opcode{rdmap.OpAtomicRequest}, back: rdmap.OpAtomicResponse},
}

// stage is a pair on which operations run, in a bubble.
type stage struct {
	*usiwtest.Pair
	t    *testing.T
	a, b []byte // expected memory of both sides
	mw   *verbs.MW
}

// newStage returns a pair whose memory holds a pattern. B's memory window is bound.
func newStage(t *testing.T, cfg usiwtest.PairConfig) *stage {
	t.Helper()
	s := &stage{t: t, Pair: usiwtest.Connect(t, cfg)}
	s.a, s.b = bytes.Clone(initially[0]), bytes.Clone(initially[1])
	require.Equal(t, len(s.a), copy(s.A.MR.Bytes(), s.a))
	require.Equal(t, len(s.b), copy(s.B.MR.Bytes(), s.b))
	// Without RTR the passive side does nothing until the active side has sent a message.
	wc, err := s.A.Do(t.Context(), verbs.SendWR{Opcode: verbs.WRRDMAWrite})
	require.NoError(t, err)
	require.NoError(t, wc.Err())
	s.mw, err = s.B.PD.AllocMW(verbs.MWType2)
	require.NoError(t, err)
	s.bind()
	return s
}

// sgl returns an element for a part of an end's memory.
func sgl(t *testing.T, e *usiwtest.End, off, n int) []verbs.SGE {
	t.Helper()
	s, err := e.MR.SGE(off, n)
	require.NoError(t, err)
	return []verbs.SGE{s}
}

// bind binds B's window, under a new key.
func (s *stage) bind() {
	s.t.Helper()
	wc, err := s.B.Do(s.t.Context(), verbs.SendWR{Opcode: verbs.WRBindMW, RKey: s.mw.NextRKey(),
		Bind: &verbs.MWBind{MW: s.mw, MR: s.B.MR, Addr: s.B.MR.Addr() + window, Length: part,
			Access: verbs.AccessRemoteRead}})
	require.NoError(s.t, err)
	require.Equal(s.t, verbs.WCBindMW, wc.Opcode)
	require.NoError(s.t, wc.Err())
}

// request returns the request of an operation on n bytes.
func (s *stage) request(o *operation, id uint64, n int) verbs.SendWR {
	s.t.Helper()
	wr := o.wr
	wr.ID, wr.RKey = id, s.B.MR.RKey()
	wr.Flags |= verbs.SendSignaled
	switch wr.Opcode {
	case verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		wr.SGL, wr.RemoteAddr = sgl(s.t, s.A, source, n), s.B.MR.Addr()+target
	case verbs.WRSendWithInv:
		wr.SGL, wr.InvalidateRKey = sgl(s.t, s.A, source, n), s.mw.RKey()
	case verbs.WRRDMARead:
		wr.SGL, wr.RemoteAddr = sgl(s.t, s.A, sink, n), s.B.MR.Addr()+readAt
	case verbs.WRAtomicFetchAndAdd, verbs.WRMaskedAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp,
		verbs.WRMaskedAtomicCmpAndSwp:
		wr.SGL, wr.RemoteAddr = sgl(s.t, s.A, word, 8), s.B.MR.Addr()+word
	}
	return wr
}

// apply applies the effect of the operation to the model.
func (s *stage) apply(wr *verbs.SendWR, n int) {
	old := binary.NativeEndian.Uint64(s.b[word:])
	atomic := func(v uint64) {
		binary.NativeEndian.PutUint64(s.a[word:], old)
		binary.NativeEndian.PutUint64(s.b[word:], v)
	}
	switch wr.Opcode {
	case verbs.WRSend, verbs.WRSendWithInv:
		copy(s.b[receive:], s.a[source:source+n])
	case verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm:
		copy(s.b[target:], s.a[source:source+n])
	case verbs.WRRDMARead:
		copy(s.a[sink:], s.b[readAt:readAt+n])
	case verbs.WRAtomicFetchAndAdd:
		atomic(old + wr.Add)
	case verbs.WRMaskedAtomicFetchAndAdd:
		// Two fields of 32 bits, with no carry between them.
		require.EqualValues(s.t, 1<<31, wr.AddMask)
		atomic((old>>32+wr.Add>>32)<<32 | uint64(uint32(old)+uint32(wr.Add)))
	case verbs.WRAtomicCmpAndSwp:
		if atomic(old); old == wr.Compare {
			atomic(wr.Swap)
		}
	case verbs.WRMaskedAtomicCmpAndSwp:
		// The last byte is compared, the one before it replaced.
		require.Equal(s.t, [2]uint64{0xff, 0xff00}, [2]uint64{wr.CompareMask, wr.SwapMask})
		if atomic(old); byte(old) == byte(wr.Compare) {
			atomic(old&^0xff00 | wr.Swap&0xff00)
		}
	}
}

// intact requires that the memory of both sides matches the model.
func (s *stage) intact(what string, args ...any) {
	s.t.Helper()
	require.True(s.t, bytes.Equal(s.a, s.A.MR.Bytes()), append([]any{"memory of A: " + what}, args...)...)
	require.True(s.t, bytes.Equal(s.b, s.B.MR.Bytes()), append([]any{"memory of B: " + what}, args...)...)
}

// expectReceive posts the receive that an operation needs, if any.
func (s *stage) expectReceive(o *operation, n int) {
	s.t.Helper()
	if o.recv == 0 {
		return
	}
	_, err := s.B.QP.PostRecv([]verbs.RecvWR{{ID: 77, SGL: sgl(s.t, s.B, receive, n)}})
	require.NoError(s.t, err)
}

// run performs an operation on n bytes and requires that it has exactly the intended effect.
func (s *stage) run(o *operation, n int) {
	s.t.Helper()
	s.expectReceive(o, n)
	wr := s.request(o, 5, n)
	wc, err := s.A.Do(s.t.Context(), wr)
	require.NoError(s.t, err)
	want := verbs.WC{ID: 5, Opcode: o.wc, QPNum: s.A.QP.Num()}
	switch o.back {
	case rdmap.OpReadResponse:
		want.ByteLen = uint32(n)
	case rdmap.OpAtomicResponse:
		want.ByteLen = 8
	}
	require.Equal(s.t, want, wc)
	if o.recv != 0 {
		wc, err := usiwtest.Next(s.t.Context(), s.B.RecvCQ)
		require.NoError(s.t, err)
		want := verbs.WC{ID: 77, Opcode: o.recv, QPNum: s.B.QP.Num(), ByteLen: uint32(n)}
		switch o.wr.Opcode {
		case verbs.WRSendWithInv:
			want.Flags, want.InvalidatedRKey = verbs.WCWithInv, wr.InvalidateRKey
		case verbs.WRRDMAWriteWithImm:
			want.Flags, want.Imm, want.Imm64 = verbs.WCWithImm, wr.Imm, uint64(wr.Imm)<<32
		case verbs.WRImmData:
			want.Flags, want.Imm, want.Imm64, want.ByteLen = verbs.WCWithImm, uint32(wr.Imm64>>32), wr.Imm64, 8
		}
		require.Equal(s.t, want, wc)
	}
	synctest.Wait()
	s.apply(&wr, n)
	s.intact(o.name)
	if o.wr.Opcode == verbs.WRSendWithInv {
		s.bind()
	}
}

// drain returns the completions in a CQ.
func drain(t *testing.T, cq *verbs.CQ) (wcs []verbs.WC) {
	t.Helper()
	synctest.Wait()
	for {
		var batch [16]verbs.WC
		n, err := cq.Poll(batch[:])
		require.NoError(t, err)
		if n == 0 {
			return wcs
		}
		wcs = append(wcs, batch[:n]...)
	}
}

// statuses returns the statuses of completions, which must belong to the requests 1, 2, 3 ...
func statuses(t *testing.T, wcs []verbs.WC) (all []verbs.WCStatus) {
	t.Helper()
	for i := range wcs {
		require.EqualValues(t, i+1, wcs[i].ID, "the order of completions")
		all = append(all, wcs[i].Status)
	}
	return all
}

// ended requires that both sides report that the connection ended with a Terminate from from with
// the given codes.
func (s *stage) ended(from *usiwtest.End, layer, typ, code uint8) {
	s.t.Helper()
	synctest.Wait()
	for _, e := range []*usiwtest.End{s.A, s.B} {
		select {
		case <-e.ID.Done():
		default:
			require.FailNow(s.t, "the connection has not ended")
		}
		want := &verbs.TerminateError{Layer: layer, Type: typ, Code: code, Remote: e != from}
		require.Equal(s.t, verbs.QPStateErr, e.QP.State())
		require.ErrorIs(s.t, e.QP.Err(), want)
		require.ErrorIs(s.t, e.ID.Err(), want)
		ev, err := e.Context.WaitEvent(s.t.Context())
		require.NoError(s.t, err)
		require.Same(s.t, e.QP, ev.QP)
		require.ErrorIs(s.t, ev.Err, want)
	}
}
