// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/ibverbs/ibverbstest"
)

// goRig is a pair of QPs on a device in Go, which the provider of the kernel's devices takes for
// one of libibverbs.
type goRig struct {
	*testing.T
	lib  *ibverbstest.Device
	ctx  *Context
	pd   *PD
	cqs  [2]*CQ
	qps  [2]*QP
	mems [2]*MR
}

func newGoRig(t *testing.T) *goRig {
	r := &goRig{T: t, lib: ibverbstest.New()}
	list, err := r.lib.Devices()
	require.NoError(t, err)
	r.ctx, err = NewDevice(&kernelDevice{lib: r.lib, info: publicDevice(&list[0])}).Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.ctx.Close()) })
	r.pd, err = r.ctx.AllocPD()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.pd.Close()) })
	for i := range r.qps {
		r.cqs[i], err = r.ctx.CreateCQ(CQConfig{CQE: 16})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.cqs[i].Close()) })
		r.mems[i], err = r.pd.AllocMR(4096, AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.mems[i].Close()) })
		r.qps[i], err = r.pd.CreateQP(QPConfig{SendCQ: r.cqs[i], RecvCQ: r.cqs[i], Type: QPTypeRC,
			Cap: QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.qps[i].Close()) })
	}
	for i, q := range r.qps {
		r.connect(q, r.qps[1-i])
	}
	return r
}

func (r *goRig) connect(q, peer *QP) {
	r.Helper()
	require.NoError(r, q.Modify(
		QPAttr{State: QPStateInit, PortNum: 1, AccessFlags: AccessRemoteWrite | AccessRemoteRead},
		QPAttrState|QPAttrPKeyIndex|QPAttrPort|QPAttrAccessFlags))
	require.NoError(r, q.Modify(QPAttr{State: QPStateRTR, PathMTU: MTU1024, DestQPNum: peer.Num(), MaxDestRdAtomic: 2,
		MinRNRTimer: 12, AH: AHAttr{DLID: 1, PortNum: 1}},
		QPAttrState|QPAttrAV|QPAttrPathMTU|QPAttrDestQPN|QPAttrRQPSN|QPAttrMaxDestRdAtomic|QPAttrMinRNRTimer))
	require.NoError(r, q.Modify(QPAttr{State: QPStateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 2},
		QPAttrState|QPAttrSQPSN|QPAttrTimeout|QPAttrRetryCnt|QPAttrRNRRetry|QPAttrMaxRdAtomic))
}

func (r *goRig) sge(i, off, n int) SGE {
	r.Helper()
	s, err := r.mems[i].SGE(off, n)
	require.NoError(r, err)
	return s
}

func (r *goRig) send(i int, wrs ...SendWR) {
	r.Helper()
	n, err := r.qps[i].PostSend(wrs)
	require.NoError(r, err)
	require.Equal(r, len(wrs), n)
}

// poll returns the n completions that a CQ has.
func (r *goRig) poll(i, n int) []WC {
	r.Helper()
	wcs := make([]WC, n+1)
	got, err := r.cqs[i].Poll(wcs)
	require.NoError(r, err)
	require.Equal(r, n, got)
	return wcs[:n]
}

// TestGoDevice: what a program does on a device of the kernel's it does without C as well.
func TestGoDevice(t *testing.T) {
	r := newGoRig(t)
	attr, err := r.ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, 128, attr.MaxInlineData, "found out by making QPs")
	require.Equal(t, "go", attr.FwVer)

	copy(r.mems[0].Bytes(), "a message")
	_, err = r.qps[1].PostRecv([]RecvWR{{ID: 1, SGL: []SGE{r.sge(1, 0, 4), r.sge(1, 8, 100)}}})
	require.NoError(t, err)
	r.send(0, SendWR{ID: 2, Opcode: WRSendWithImm, Flags: SendSignaled, SGL: []SGE{r.sge(0, 0, 9)}, Imm: 7})
	require.Equal(t, []WC{{ID: 2, Opcode: WCSend, QPNum: r.qps[0].Num()}}, r.poll(0, 1))
	got := r.poll(1, 1)[0]
	require.Equal(t, WC{ID: 1, Opcode: WCRecv, Flags: WCWithImm, ByteLen: 9, Imm: 7, QPNum: r.qps[1].Num()}, got)
	require.Equal(t, "a me\x00\x00\x00\x00ssage", string(r.mems[1].Bytes()[:13]))

	to := r.mems[1].RKey()
	at := r.sge(1, 0, 1).Addr
	r.send(0,
		SendWR{ID: 3, Opcode: WRRDMAWrite, SGL: []SGE{r.sge(0, 2, 7)}, RemoteAddr: at, RKey: to},
		SendWR{ID: 4, Opcode: WRRDMARead, Flags: SendSignaled, SGL: []SGE{r.sge(0, 100, 13)}, RemoteAddr: at, RKey: to})
	require.EqualValues(t, 4, r.poll(0, 1)[0].ID)
	require.Equal(t, "message\x00ssage", string(r.mems[0].Bytes()[100:113]))
}

// TestGoDeviceFlush: a QP that is moved to ERR, or closed, has all its requests back.
func TestGoDeviceFlush(t *testing.T) {
	r := newGoRig(t)
	r.send(0, SendWR{ID: 1, Opcode: WRSend}, SendWR{ID: 2, Opcode: WRSend})
	_, err := r.qps[0].PostRecv([]RecvWR{{ID: 3}})
	require.NoError(t, err)
	r.poll(0, 0)
	require.NoError(t, r.qps[0].Modify(QPAttr{State: QPStateErr}, QPAttrState))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, r.qps[0].Drain(ctx))
	for i, wc := range r.poll(0, 3) {
		require.EqualValues(t, i+1, wc.ID)
		require.Equal(t, WCWRFlushErr, wc.Status)
	}
}

// TestGoDeviceDenied: a Write that the peer does not allow fails, and the peer learns of it by an
// event.
func TestGoDeviceDenied(t *testing.T) {
	r := newGoRig(t)
	r.send(0, SendWR{ID: 1, Opcode: WRRDMAWrite, SGL: []SGE{r.sge(0, 0, 8)}, RemoteAddr: 1, RKey: 12345})
	require.Equal(t, WCRemAccessErr, r.poll(0, 1)[0].Status)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ev, err := r.ctx.WaitEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, EventQPAccessErr, ev.Type)
	require.Same(t, r.qps[1], ev.QP)
	require.ErrorIs(t, r.qps[0].Err(), WCRemAccessErr)
}

// TestSeamNumbers: the numbers of package ibverbs are the public ones.
func TestSeamNumbers(t *testing.T) {
	for _, c := range [][2]any{
		{ibverbs.StateReset, QPStateReset}, {ibverbs.StateInit, QPStateInit}, {ibverbs.StateRTR, QPStateRTR},
		{ibverbs.StateRTS, QPStateRTS}, {ibverbs.StateErr, QPStateErr},
		{ibverbs.AttrState, QPAttrState}, {ibverbs.AttrAccessFlags, QPAttrAccessFlags},
		{ibverbs.AttrDestQPN, QPAttrDestQPN},
		{ibverbs.OpWrite, WRRDMAWrite}, {ibverbs.OpWriteImm, WRRDMAWriteWithImm}, {ibverbs.OpSend, WRSend},
		{ibverbs.OpSendImm, WRSendWithImm}, {ibverbs.OpRead, WRRDMARead},
		{ibverbs.FlagSignaled, SendSignaled}, {ibverbs.FlagSolicited, SendSolicited}, {ibverbs.FlagInline, SendInline},
		{ibverbs.Success, WCSuccess}, {ibverbs.LocLenErr, WCLocLenErr}, {ibverbs.LocQPOpErr, WCLocQPOpErr},
		{ibverbs.LocProtErr, WCLocProtErr}, {ibverbs.Flushed, WCWRFlushErr}, {ibverbs.RemInvReqErr, WCRemInvReqErr},
		{ibverbs.RemAccessErr, WCRemAccessErr},
		{ibverbs.WCSend, WCSend}, {ibverbs.WCWrite, WCRDMAWrite}, {ibverbs.WCRead, WCRDMARead},
		{ibverbs.WCRecv, WCRecv}, {ibverbs.WCRecvWithImm, WCRecvRDMAWithImm}, {ibverbs.WCWithImm, WCWithImm},
		{ibverbs.AccessLocalWrite, AccessLocalWrite}, {ibverbs.AccessRemoteWrite, AccessRemoteWrite},
		{ibverbs.AccessRemoteRead, AccessRemoteRead},
		{ibverbs.EventCQErr, EventCQErr}, {ibverbs.EventQPAccessErr, EventQPAccessErr},
	} {
		require.EqualValues(t, c[1], c[0], "%v", c[1])
	}
}
