// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPostedIsWhatWasPosted(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	require.Empty(t, LastPosted())
	_, err := r.qp.postSend(WR{WRID: 9, Opcode: opRead, NumSGE: 1, SGEs: []SGE{{1, 2, 3}}})
	require.NoError(t, err)
	_, err = r.qp.postSend(
		WR{WRID: 1, Opcode: opWriteWithImm, Flags: signaled, NumSGE: 1, SGEs: []SGE{{0x1000, 64, 5}},
			RemoteAddr: 0x2000,
			RKey:       6, Imm: 0x01020304},
		WR{WRID: 2, Opcode: opSend, Flags: inline, NumSGE: 1, Inline: []byte("hello")})
	require.NoError(t, err)
	require.Len(t, Posted(), 3)
	got := LastPosted()
	require.Len(t, got, 2)
	require.Equal(t, WR{Call: 2, QPN: r.qp.num(), WRID: 1, Opcode: opWriteWithImm, Flags: signaled, NumSGE: 1,
		SGEs: []SGE{{0x1000, 64, 5}}, RemoteAddr: 0x2000, RKey: 6, Imm: 0x01020304,
		InvalidateRKey: got[0].InvalidateRKey}, got[0])
	require.Equal(t, "hello", string(got[1].Inline))
	require.Zero(t, got[1].RemoteAddr)
	require.NoError(t, r.qp.postRecv(77))
	require.Equal(t, []WR{{Call: 3, QPN: r.qp.num(), Recv: true, WRID: 77, NumSGE: 1, SGEs: []SGE{{0x1000, 64, 3}}}},
		LastPosted())
}

func TestQueuesAreFull(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	var all []WR
	for i := range 10 {
		all = append(all, WR{WRID: uint64(i), Opcode: opWrite})
	}
	bad, err := r.qp.postSend(all...)
	require.Equal(t, syscall.ENOMEM, err)
	require.Equal(t, 8, bad)
	require.Len(t, LastPosted(), 8)
	for range 8 {
		require.NoError(t, r.qp.postRecv(1))
	}
	require.Equal(t, syscall.ENOMEM, r.qp.postRecv(1))
}

func TestFailPost(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	two := []WR{{WRID: 1, Opcode: opWrite}, {WRID: 2, Opcode: opWrite}}
	FailPost("ibv_post_send", 1, PostFailure{Index: 1, Result: -5})
	bad, err := r.qp.postSend(two...)
	require.Equal(t, negative(-5), err)
	require.Equal(t, 1, bad)
	require.Len(t, LastPosted(), 1)

	FailPost("ibv_post_send", 1, PostFailure{Index: 0, Result: 12, NoBadWR: true})
	bad, err = r.qp.postSend(two...)
	require.Equal(t, syscall.ENOMEM, err)
	require.Equal(t, -2, bad, "not set")

	FailPost("ibv_post_send", 1, PostFailure{Index: 2, Result: -5})
	bad, err = r.qp.postSend(two...)
	require.Equal(t, negative(-5), err)
	require.Equal(t, -1, bad, "NULL")
	require.Len(t, LastPosted(), 2, "all were taken")

	bad, err = r.qp.postSend(two...)
	require.NoError(t, err)
	require.Equal(t, -2, bad)
}

func TestCompletions(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	_, err := r.qp.postSend(WR{WRID: 1, Opcode: opWrite, Flags: signaled}, WR{WRID: 2, Opcode: opWrite},
		WR{WRID: 3, Opcode: opRead, Flags: signaled}, WR{WRID: 4, Opcode: opWrite})
	require.NoError(t, err)
	require.NoError(t, r.qp.postRecv(5))
	require.NoError(t, r.qp.postRecv(6))
	require.NoError(t, r.qp.postRecv(7))
	wcs, err := r.cq.poll(8)
	require.NoError(t, err)
	require.Empty(t, wcs)
	require.Equal(t, 3, CompleteSend(r.qp.num(), 3, 0))
	require.Equal(t, 1, CompleteRecv(r.qp.num(), 1, 0, 64))
	require.True(t, Receive(r.qp.num(), WC{Opcode: wcRecv + 1, Imm: 0xa0b0c0d0, Flags: 2}))
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Equal(t, []WC{{WRID: 1, Opcode: wcWrite}, {WRID: 3, Opcode: wcRead}, {WRID: 5, Opcode: wcRecv, ByteLen: 64},
		{WRID: 6, Opcode: wcRecv + 1, Imm: 0xa0b0c0d0, Flags: 2}}, wcs)

	require.NoError(t, r.qp.modify(stateErr, 0))
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Len(t, wcs, 2)
	require.Equal(t, []uint64{4, 7}, []uint64{wcs[0].WRID, wcs[1].WRID}, "an unsignaled one too")
	for _, wc := range wcs {
		require.Equal(t, uint32(statusFlush), wc.Status)
		require.Equal(t, uint32(0xdbdbdbdb), wc.Opcode, "means nothing on a failure")
	}
	_, err = r.qp.postSend(WR{WRID: 8, Opcode: opWrite})
	require.NoError(t, err)
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Len(t, wcs, 1, "flushed at once")

	require.Equal(t, -1, CompleteSend(1, 1, 0), "no such QP")
	require.False(t, InjectWC(1, true, WC{}))
	require.False(t, Receive(r.qp.num(), WC{}), "nothing is posted")
}

func TestAutoComplete(t *testing.T) {
	r := newRig(t, Fake0)
	r.up(t)
	AutoComplete(true)
	for i := range 20 {
		_, err := r.qp.postSend(WR{WRID: uint64(i), Opcode: opWrite, Flags: signaled})
		require.NoError(t, err)
		wcs, err := r.cq.poll(8)
		require.NoError(t, err)
		require.Equal(t, []WC{{WRID: uint64(i), Opcode: wcWrite}}, wcs)
	}
}

func TestOverrunIsAnAsyncEvent(t *testing.T) {
	r := newRig(t, Fake0)
	for range 17 {
		require.True(t, InjectWC(r.qp.num(), false, WC{}))
	}
	event, ack, err := r.ctx.getAsync()
	require.NoError(t, err)
	require.Zero(t, event, "CQ_ERR")
	ack.ackAsync()
}

func TestNotify(t *testing.T) {
	r := newRig(t, Fake0)
	require.NoError(t, unix.SetNonblock(r.ch.fd(), true))
	_, err := r.ch.getEvent()
	require.Equal(t, syscall.EAGAIN, err)
	require.True(t, InjectWC(r.qp.num(), false, WC{}))
	require.False(t, readable(t, r.ch.fd()), "not armed")

	require.NoError(t, r.cq.notify(true))
	require.True(t, InjectWC(r.qp.num(), false, WC{}))
	require.False(t, readable(t, r.ch.fd()), "not solicited")
	require.True(t, InjectWC(r.qp.num(), false, WC{Solicited: true}))
	require.True(t, InjectWC(r.qp.num(), false, WC{Solicited: true}))
	got, err := r.ch.getEvent()
	require.NoError(t, err)
	require.Equal(t, r.cq, got)
	_, err = r.ch.getEvent()
	require.Equal(t, syscall.EAGAIN, err, "one event for each arming")

	require.NoError(t, r.cq.notify(true))
	require.NoError(t, r.cq.notify(false))
	require.NoError(t, r.cq.notify(true))
	require.True(t, InjectWC(r.qp.num(), true, WC{}))
	_, err = r.ch.getEvent()
	require.NoError(t, err)
	require.NoError(t, r.cq.notify(true))
	require.True(t, InjectWC(r.qp.num(), true, WC{Status: statusFlush}))
	_, err = r.ch.getEvent()
	require.NoError(t, err, "a failure counts as solicited")
	r.cq.ackEvents(3)
}

func TestBlockingGetIsAFault(t *testing.T) {
	r := newRig(t, Fake0)
	SetBlockLimit(30 * time.Millisecond)
	_, err := r.ch.getEvent()
	require.Equal(t, syscall.EINTR, err)
	require.Equal(t, []string{"ibv_get_cq_event: blocked without an event"}, Faults())
	_, _, err = r.ctx.getAsync()
	require.Equal(t, syscall.EINTR, err)
	require.Equal(t, []string{"ibv_get_async_event: blocked without an event"}, Faults())

	time.AfterFunc(10*time.Millisecond, func() { InjectAsync(Fake0, 9, 1) })
	SetBlockLimit(2 * time.Second)
	event, ack, err := r.ctx.getAsync()
	require.NoError(t, err)
	require.Equal(t, 9, event)
	ack.ackAsync()
}

func TestInjectAsync(t *testing.T) {
	r := newRig(t, Fake0)
	other := open(t, Fake1)
	require.Equal(t, 1, InjectAsync(Fake0, 9, 1), "PORT_ACTIVE goes to each context of the device")
	require.True(t, readable(t, r.ctx.asyncFD()))
	require.False(t, readable(t, other.asyncFD()))
	event, ack, err := r.ctx.getAsync()
	require.NoError(t, err)
	require.Equal(t, 9, event)
	ack.ackAsync()
	require.Equal(t, 1, InjectAsync(Fake0, 1, r.qp.num()))
	event, ack, err = r.ctx.getAsync()
	require.NoError(t, err)
	require.Equal(t, 1, event)
	ack.ackAsync()
	require.Zero(t, InjectAsync(Fake0, 1, 1), "no such QP")
	require.Zero(t, InjectAsync(Fake0, 0, 1<<30), "no such CQ")
	require.Zero(t, InjectAsync(Fake0, 14, 1<<30), "no such SRQ")
}

func TestModify(t *testing.T) {
	r := newRig(t, Fake0)
	require.Equal(t, syscall.EINVAL, r.qp.modify(stateRTR, maskRTR), "from RESET")
	require.Equal(t, syscall.EINVAL, r.qp.modify(stateInit, 0), "without what the edge needs")
	_, err := r.qp.postSend(WR{Opcode: opWrite})
	require.Equal(t, syscall.EINVAL, err)
	require.Equal(t, syscall.EINVAL, r.qp.postRecv(1), "in RESET")
	r.up(t)
	state, err := r.qp.queryState()
	require.NoError(t, err)
	require.Equal(t, stateRTS, state)
	got, ok := QPByNum(r.qp.num())
	require.True(t, ok)
	require.Equal(t, QP{Type: qptRC, Modifies: 3, Mask: maskInit | maskRTR | maskRTS | 1, State: stateRTS, Access: 4,
		Port: 1, PathMTU: 3, DestQPN: 7, RQPSN: 5, SQPSN: 6, MaxRdAtomic: 4, MaxDestRdAtomic: 3, MinRNRTimer: 12,
		Timeout:  14,
		RetryCnt: 7, RNRRetry: 6, MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64,
		AH: AHAttr{SGIDIndex: 3, IsGlobal: true, Port: 1}}, got)
	require.Equal(t, []uint32{r.qp.num()}, QPs())
	_, ok = QPByNum(1)
	require.False(t, ok)
}

func TestQPOnFake1(t *testing.T) {
	r := newRig(t, Fake1)
	_, err := r.pd.createQP(qptUD, r.cq, r.cq, 8)
	require.Equal(t, syscall.EOPNOTSUPP, err)
	require.NoError(t, r.qp.modify(stateInit, maskInit))
	require.Equal(t, syscall.EINVAL, r.qp.modify(stateRTS, 0), "only the connection manager does that")
	state, err := r.qp.queryState()
	require.NoError(t, err)
	require.Zero(t, state, "siw does not tell")
	_, err = r.qp.postSend(WR{Opcode: opWrite})
	require.NoError(t, err, "in any state")
	bad, err := r.qp.postSend(WR{Opcode: 5})
	require.Equal(t, negative(-22), err)
	require.Zero(t, bad)
	Fail("ibv_post_send", 1, syscall.EIO)
	_, err = r.qp.postSend(WR{Opcode: opWrite})
	require.Equal(t, negative(-5), err)
	require.NoError(t, r.qp.modify(stateErr, 0))
	wcs, err := r.cq.poll(8)
	require.NoError(t, err)
	require.Len(t, wcs, 1)
	_, err = r.qp.postSend(WR{Opcode: opWrite, Flags: signaled})
	require.NoError(t, err)
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Empty(t, wcs, "never completed")
}

func TestTrapsOfSiwAreFaults(t *testing.T) {
	r := newRig(t, Fake1)
	sge := func(addr uint64, n uint32) []SGE { return []SGE{{addr, n, 1}} }
	read := WR{Opcode: opRead, NumSGE: 1, SGEs: sge(0x1000, 64)}
	const crosses, whole, long = 0x1ff0, 0x1fe0, 33
	for _, c := range []struct {
		before, wr WR // before: opcode 0 = none
		want       string
	}{
		{WR{}, read, ""},
		{read, read, ""}, // the QP has no connection, and so a depth of 0
		{WR{}, WR{Opcode: opRead}, "a Read without an SGE on siw: it reads as much as the request before it"},
		{WR{}, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(0x1000, 64), Flags: fence},
			"a fenced Read on siw: its queue jams"},
		{WR{}, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(0x1000, 0)}, ""},
		{read, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(0x1000, 0)},
			"a Read of 0 bytes behind another to a siw: it answers with others"},
		{WR{}, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(whole, 32), RemoteAddr: crosses},
			"a Read of 32 bytes across a page of a siw: it answers with others"},
		{WR{}, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(crosses, 32), RemoteAddr: whole}, ""},
		{WR{}, WR{Opcode: opRead, NumSGE: 1, SGEs: sge(crosses, long), RemoteAddr: crosses}, ""},
		{WR{}, WR{Opcode: opSend, NumSGE: 1, SGEs: sge(crosses, 32)},
			"32 bytes from one SGE that crosses a page on siw: it sends others"},
		{WR{}, WR{Opcode: opSend, NumSGE: 1, SGEs: sge(whole, 32)}, ""},
		{WR{}, WR{Opcode: opSend, NumSGE: 1, SGEs: sge(crosses, long)}, ""},
		{WR{}, WR{Opcode: opWrite, Flags: fence}, ""},
		{read, WR{Opcode: opWrite, Flags: fence},
			"a fenced request behind a Read on siw: until it is answered no Read of the peer's is"},
	} {
		if c.before.Opcode != 0 {
			_, err := r.qp.postSend(c.before)
			require.NoError(t, err)
		}
		_, err := r.qp.postSend(c.wr)
		require.NoError(t, err)
		var want []string
		if c.want != "" {
			want = []string{"ibv_post_send: " + c.want}
		}
		require.Equal(t, want, Faults(), "%+v", c.wr)
		CompleteSend(r.qp.num(), 2, 0)
	}
	_, err := r.qp.postSend(WR{Opcode: 12})
	require.Error(t, err)
	require.Equal(t, []string{"ibv_post_send: opcode 12, which indexes libsiw's table of 12"}, Faults())
}

func TestHot(t *testing.T) {
	r := newRig(t, Fake0)
	SetHot(HotPaired)
	_, err := r.qp.postSend(WR{WRID: 3, Opcode: opWrite}, WR{WRID: 4, Opcode: opWrite})
	require.NoError(t, err)
	wcs, err := r.cq.poll(8)
	require.NoError(t, err)
	require.Equal(t, []WC{{WRID: 3, Opcode: wcWrite, ByteLen: 64}, {WRID: 4, Opcode: wcWrite, ByteLen: 64}}, wcs)
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Empty(t, wcs)
	SetHot(HotEndless)
	wcs, err = r.cq.poll(8)
	require.NoError(t, err)
	require.Len(t, wcs, 8)
	require.Zero(t, Calls("ibv_post_send"))
	SetHot(HotOff)
	_, err = r.qp.postSend(WR{Opcode: opWrite})
	require.Equal(t, syscall.EINVAL, err)
	require.Equal(t, 1, Calls("ibv_post_send"))
}

func TestPureCTakesTime(t *testing.T) {
	require.Positive(t, BenchPureCPost(16, 1000))
	require.Positive(t, BenchPureCPoll(16, 1000))
	require.Positive(t, BenchCgoCall(1000))
	require.Zero(t, BenchPureCPost(65, 1))
	require.Zero(t, BenchPureCPoll(65, 1))
}

func BenchmarkPureC(b *testing.B) {
	b.Run("cgo call", func(b *testing.B) { b.ReportMetric(perOp(b, BenchCgoCall(b.N), 1), "ns/call") })
	for _, n := range []int{1, 16, 64} {
		b.Run("post", func(b *testing.B) { b.ReportMetric(perOp(b, BenchPureCPost(n, b.N), n), "ns/wr") })
		b.Run("poll", func(b *testing.B) { b.ReportMetric(perOp(b, BenchPureCPoll(n, b.N), n), "ns/cqe") })
	}
}

func perOp(b *testing.B, d time.Duration, n int) float64 {
	return float64(d.Nanoseconds()) / float64(b.N) / float64(n)
}
