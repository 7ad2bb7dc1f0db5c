// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var srqTests = []test{
	{"Create", srqCreate},
	{"CreateInvalid", srqCreateInvalid},
	{"Post", srqPost},
	{"PostInvalid", srqPostInvalid},
	{"Order", srqOrder},
	{"Sizes", srqSizes},
	{"Immediate", srqImmediate},
	{"NoReceive", srqNoReceive},
	{"BadReceive", srqBadReceive},
	{"TooLong", srqTooLong},
	{"Limit", srqLimit},
	{"LimitInvalid", srqLimitInvalid},
	{"Resize", srqResize},
	{"QPFails", srqQPFails},
	{"LastWQE", srqLastWQE},
	{"CloseBusy", srqCloseBusy},
	{"CloseWithReceives", srqCloseWithReceives},
	{"Closed", srqClosed},
	{"Foreign", srqForeign},
	{"OtherPD", srqOtherPD},
	{"Concurrent", srqConcurrent},
	{"Alloc", srqAlloc},
}

// srq creates a shared receive queue on the passive side, or returns nil if the device lacks them.
func (w *world) srq(attr verbs.SRQAttr) *verbs.SRQ {
	w.Helper()
	return w.srqIn(w.b.pd, attr)
}

func (w *world) srqIn(pd *verbs.PD, attr verbs.SRQAttr) *verbs.SRQ {
	w.Helper()
	s, err := pd.CreateSRQ(attr)
	if w.unless("srq", err) {
		require.Zero(w, w.b.attr.MaxSRQ)
		return nil
	}
	w.Cleanup(func() { require.NoError(w, s.Close()) })
	return s
}

// sharing creates n pairs whose passive sides share an SRQ.
func (w *world) sharing(s *verbs.SRQ, n int) []*pair {
	w.Helper()
	pairs := make([]*pair, n)
	for i := range pairs {
		pairs[i] = w.pair(pairConfig{srq: s})
	}
	return pairs
}

func srqCreate(w *world) outcome {
	s := w.srq(verbs.SRQAttr{})
	if s == nil {
		return noted
	}
	require.Positive(w, w.b.attr.MaxSRQ)
	require.Same(w, w.b.pd, s.PD())
	require.NotNil(w, s.Provider())
	p := w.pair(pairConfig{srq: s})
	require.Same(w, s, p.b.qp.SRQ())
	require.Nil(w, p.a.qp.SRQ())
	p.works()
	got, err := s.Query()
	if w.unless("srq-query", err) {
		return noted
	}
	require.GreaterOrEqual(w, got.MaxWR, min(verbs.DefaultRecvWR, w.b.attr.MaxSRQWR))
	require.GreaterOrEqual(w, got.MaxSGE, verbs.DefaultSGE)
	require.Zero(w, got.SRQLimit)
	for _, want := range []verbs.SRQAttr{{MaxWR: 1, MaxSGE: 1}, {MaxWR: 100, MaxSGE: 3}, {MaxWR: w.b.attr.MaxSRQWR},
		{MaxSGE: w.b.attr.MaxSRQSGE}} {
		got, err := w.srq(want).Query()
		require.NoError(w, err)
		require.GreaterOrEqual(w, got.MaxWR, want.MaxWR)
		require.GreaterOrEqual(w, got.MaxSGE, want.MaxSGE)
	}
	return tested
}

// size returns the sizes of a queue created with attr. On a device that does not support queries it
// returns attr.
func (w *world) size(s *verbs.SRQ, attr verbs.SRQAttr) verbs.SRQAttr {
	w.Helper()
	got, err := s.Query()
	if w.unless("srq-query", err) {
		return attr
	}
	return got
}

func srqCreateInvalid(w *world) outcome {
	if w.srq(verbs.SRQAttr{}) == nil {
		return noted
	}
	a := w.b.attr
	for _, c := range []struct {
		name string
		most int
		attr func(v int) verbs.SRQAttr
	}{
		{"max_srq_wr", a.MaxSRQWR, func(v int) verbs.SRQAttr { return verbs.SRQAttr{MaxWR: v} }},
		{"max_srq_sge", a.MaxSRQSGE, func(v int) verbs.SRQAttr { return verbs.SRQAttr{MaxSGE: v} }},
	} {
		for _, v := range []int{c.most + 1, math.MaxInt} {
			_, err := w.b.pd.CreateSRQ(c.attr(v))
			requireLimit(w.T, err, c.name, uint64(c.most), uint64(v))
		}
		_, err := w.b.pd.CreateSRQ(c.attr(-1))
		requireErr(w.T, err, verbs.ErrInvalid)
		require.ErrorContains(w, err, c.name)
	}
	_, err := w.b.pd.CreateSRQ(verbs.SRQAttr{SRQLimit: 1})
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "srq_limit")
	return tested
}

// srqPost fills a queue, empties it with messages, and fills it again.
func srqPost(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 4, MaxSGE: 2})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	attr := w.size(s, verbs.SRQAttr{MaxWR: 4, MaxSGE: 2})
	n, err := s.PostRecv(nil)
	require.NoError(w, err)
	require.Zero(w, n)
	wrs := make([]verbs.RecvWR, attr.MaxWR+2)
	if !w.f.userSpace() {
		wrs = make([]verbs.RecvWR, 60) // the size that kernel drivers report is not exact
	}
	for i := range wrs {
		wrs[i] = verbs.RecvWR{ID: uint64(i), SGL: p.b.mem.sgl(8*(i%64), 8)}
	}
	room := attr.MaxWR
	for round := range 3 {
		n, err = s.PostRecv(wrs)
		if round == 0 && !w.f.userSpace() {
			require.GreaterOrEqual(w, n, 4)
			if room = n; n != attr.MaxWR {
				w.without("srq-size")
			}
		}
		require.Equal(w, room, n)
		requireErr(w.T, err, verbs.ErrQueueFull)
		n, err = s.PostRecv(wrs[:1])
		require.Zero(w, n)
		requireErr(w.T, err, verbs.ErrQueueFull)
		p.b.idle(p.b.rcq)
		for i := range room {
			p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(8*(i%64), 8)}), verbs.WCSend)
			require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		}
	}
	p.b.mem.holds(0, p.a.mem.Bytes()[:8*min(room, 64)])
	p.works()
	return tested
}

func srqPostInvalid(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxSGE: 1})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	attr := w.size(s, verbs.SRQAttr{MaxSGE: 1})
	// The receives before the bad one are accepted.
	n, err := s.PostRecv([]verbs.RecvWR{{ID: 1}, {ID: 2, SGL: make([]verbs.SGE, attr.MaxSGE+1)}, {ID: 3}})
	require.Equal(w, 1, n)
	requireLimit(w.T, err, "max_recv_sge", uint64(attr.MaxSGE), uint64(attr.MaxSGE+1))
	require.ErrorContains(w, err, "request 1")
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
	require.EqualValues(w, 1, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	// The QP itself accepts none.
	n, err = p.b.qp.PostRecv([]verbs.RecvWR{{ID: 4}})
	require.Zero(w, n)
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "SRQ")
	p.works()
	return tested
}

// srqOrder: messages of several connections consume the receives in order of arrival, and each
// completes in its connection's CQ.
func srqOrder(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 64})
	if s == nil {
		return noted
	}
	pairs := w.sharing(s, 3)
	m := w.b.alloc(64*8, verbs.AccessLocalWrite)
	for i := range 30 {
		n, err := s.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: m.sgl(8*i, 8)}})
		require.NoError(w, err)
		require.Equal(w, 1, n)
	}
	for i := range 30 {
		p := pairs[i*i%3]
		p.a.mem.put(0, uint64(1000+i))
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 8)}), verbs.WCSend)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, i, wc.ID)
		require.EqualValues(w, 8, wc.ByteLen)
		require.EqualValues(w, 1000+i, m.get(8*i))
	}
	for _, p := range pairs {
		p.b.idle(p.b.rcq)
		p.works()
	}
	return tested
}

// srqSizes sends messages of every size, with the segments of two connections interleaved.
func srqSizes(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16, MaxSGE: 2})
	if s == nil {
		return noted
	}
	pairs := w.sharing(s, 2)
	const most = 1 << 18
	src, dst := w.a.alloc(most, 0), w.b.alloc(2*most, verbs.AccessLocalWrite)
	for _, n := range []int{0, 1, 1500, 65537, most} {
		src.fill(byte(n))
		for i, p := range pairs {
			first := n / 3
			p.b.recv(uint64(i), dst.sge(i*most, first), dst.sge(i*most+first, most-first))
		}
		for _, p := range pairs {
			p.a.post(verbs.SendWR{ID: 9, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: src.sgl(0, n)})
		}
		took := make(map[uint64]bool)
		for _, p := range pairs {
			p.a.ok(p.a.sent(), verbs.WCSend)
			wc := p.b.ok(p.b.received(), verbs.WCRecv)
			require.EqualValues(w, n, wc.ByteLen)
			require.False(w, took[wc.ID])
			took[wc.ID] = true
			dst.holds(int(wc.ID)*most, src.Bytes()[:n])
		}
	}
	return tested
}

func srqImmediate(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	if p.lacks(verbs.OpWriteImm, writeImm(p.a.mem.sgl(0, 8), p.b.mem, 16, 7)) {
		return noted
	}
	p.b.recv(3)
	p.a.ok(p.a.run(writeImm(p.a.mem.sgl(0, 8), p.b.mem, 16, 7)), verbs.WCRDMAWrite)
	wc := p.b.ok(p.b.received(), verbs.WCRecvRDMAWithImm)
	require.EqualValues(w, 3, wc.ID)
	require.EqualValues(w, 7, wc.Imm)
	require.EqualValues(w, 8, wc.ByteLen)
	p.b.mem.holds(16, p.a.mem.Bytes()[:8])
	p.works()
	return tested
}

// srqNoReceive: an empty SRQ has the same effect as an empty receive queue of the QP.
func srqNoReceive(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	by, p := w.pair(pairConfig{srq: s}), w.pair(pairConfig{srq: s})
	by.works()
	same, rest := p.b.mem.keeps(), p.b.mem.keepsBut(0, 100)
	p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 100)})
	if !w.iwarp() {
		p.a.idle(p.a.scq)
		same()
		p.b.recv(1, p.b.mem.sge(0, 100))
		require.EqualValues(w, 1, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		p.a.ok(p.a.sent(), verbs.WCSend)
		p.b.mem.holds(0, p.a.mem.Bytes()[:100])
		rest()
		by.works()
		return tested
	}
	p.refusal(p.a.sent(), fault{status: verbs.WCRemInvReqErr}, true)
	p.broken(p.a, p.b, fault{1, 2, 0x02, verbs.WCRemInvReqErr})
	same()
	p.b.idle(p.b.rcq)
	by.works()
	return tested
}

// srqBadReceive: a receive with invalid memory fails when a message consumes it, on the message's
// connection. The other connections still work.
func srqBadReceive(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16, MaxSGE: 2})
	if s == nil {
		return noted
	}
	by := w.pair(pairConfig{srq: s})
	for _, name := range badLocals {
		w.sub(name, func(w *world) outcome {
			p := w.pair(pairConfig{srq: s})
			p.b.recv(1, badLocal(p.b, name, 100)...)
			wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 100)})
			w.peersBadBuffer(wc)
			got := p.b.received()
			require.EqualValues(w, 1, got.ID)
			w.badBuffer(got)
			p.broken(p.a, p.b, fault{1, 0, 0x00, verbs.WCRemOpErr})
			by.in(w).works()
			return tested
		})
	}
	return tested
}

func srqTooLong(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	by, p := w.pair(pairConfig{srq: s}), w.pair(pairConfig{srq: s})
	rest := p.b.mem.keepsBut(0, 10)
	p.b.recv(1, p.b.mem.sge(0, 10))
	p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 11)})
	got := p.b.received()
	require.EqualValues(w, 1, got.ID)
	w.tells(got, verbs.WCLocLenErr)
	p.broken(p.a, p.b, fault{1, 2, 0x05, verbs.WCRemInvReqErr})
	rest()
	by.works()
	return tested
}

// limitEvent waits for the event of s, or requires that there is none.
func (h *host) limitEvent(s *verbs.SRQ, want bool) {
	h.Helper()
	limit := waitLimit
	if !want {
		limit = quietTime
	}
	ctx, cancel := context.WithTimeout(h.Context(), limit)
	defer cancel()
	for {
		ev, err := h.ctx.WaitEvent(ctx)
		if err != nil {
			require.False(h, want, "no event: %v", err)
			return
		}
		if ev.Type == verbs.EventSRQLimitReached {
			require.True(h, want, "unexpected %v", ev)
			require.Same(h, s, ev.SRQ)
			require.Nil(h, ev.QP)
			return
		}
	}
}

// srqLimit: one event is generated when the number of receives falls below the limit, and no other
// until the limit is set again.
func srqLimit(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 32})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	send := func() {
		w.Helper()
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		p.b.ok(p.b.received(), verbs.WCRecv)
	}
	for range 3 {
		for i := range 6 {
			p.b.recv(uint64(i))
		}
		require.NoError(w, s.Modify(verbs.SRQAttr{SRQLimit: 3}, verbs.SRQAttrLimit))
		require.Equal(w, 3, w.size(s, verbs.SRQAttr{SRQLimit: 3}).SRQLimit)
		for range 3 { // 3 are left
			send()
		}
		w.b.limitEvent(s, false)
		send() // 2 are left
		w.b.limitEvent(s, true)
		send()
		send()
		w.b.limitEvent(s, false)
		require.Zero(w, w.size(s, verbs.SRQAttr{}).SRQLimit, "the event sets it back")
	}
	// 0 removes the limit.
	for i := range 3 {
		p.b.recv(uint64(i))
	}
	require.NoError(w, s.Modify(verbs.SRQAttr{SRQLimit: 2}, verbs.SRQAttrLimit))
	require.NoError(w, s.Modify(verbs.SRQAttr{}, verbs.SRQAttrLimit))
	for range 3 {
		send()
	}
	w.b.limitEvent(s, false)
	p.works()
	return tested
}

func srqLimitInvalid(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 32})
	if s == nil {
		return noted
	}
	before := w.size(s, verbs.SRQAttr{MaxWR: 1 << 20})
	for _, c := range []struct {
		name string
		attr verbs.SRQAttr
		mask verbs.SRQAttrMask
	}{
		{"nothing", verbs.SRQAttr{}, 0},
		{"unknown bit", verbs.SRQAttr{}, 1 << 5},
		{"negative", verbs.SRQAttr{SRQLimit: -1}, verbs.SRQAttrLimit},
		{"more than fit", verbs.SRQAttr{SRQLimit: before.MaxWR + 1}, verbs.SRQAttrLimit},
		{"negative size", verbs.SRQAttr{MaxWR: -1}, verbs.SRQAttrMaxWR},
		{"no size", verbs.SRQAttr{}, verbs.SRQAttrMaxWR},
	} {
		requireErr(w.T, s.Modify(c.attr, c.mask), verbs.ErrInvalid)
		require.Equal(w, before, w.size(s, before), c.name)
	}
	most := w.b.attr.MaxSRQWR
	requireLimit(w.T, s.Modify(verbs.SRQAttr{MaxWR: most + 1}, verbs.SRQAttrMaxWR), "max_srq_wr", uint64(most),
		uint64(most+1))
	return tested
}

// srqResize enlarges and shrinks a queue. The receives in it stay.
func srqResize(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 4})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	for i := range 4 {
		p.b.recv(uint64(i))
	}
	if w.unless("srq-resize", s.Modify(verbs.SRQAttr{MaxWR: 200}, verbs.SRQAttrMaxWR)) {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.Zero(w, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		return noted
	}
	got, err := s.Query()
	require.NoError(w, err)
	require.GreaterOrEqual(w, got.MaxWR, 200)
	for i := range 196 {
		p.b.recv(uint64(4 + i))
	}
	requireErr(w.T, s.Modify(verbs.SRQAttr{MaxWR: 100}, verbs.SRQAttrMaxWR), verbs.ErrInvalid)
	for i := range 190 {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	require.NoError(w, s.Modify(verbs.SRQAttr{MaxWR: 10}, verbs.SRQAttrMaxWR))
	for i := range 10 {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, 190+i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	p.works()
	return tested
}

// srqQPFails: a QP that fails or is closed consumes no receives other than those its messages used.
func srqQPFails(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	by := w.pair(pairConfig{srq: s})
	for i, end := range []func(p *pair){
		func(p *pair) { require.NoError(w, p.b.modify(verbs.QPStateErr)) },
		func(p *pair) {
			w.reset(p.b)
			p.b.afterReset()
		},
		func(p *pair) { require.NoError(w, p.b.id.Disconnect()) },
		func(p *pair) { require.NoError(w, p.a.id.Disconnect()) },
		func(p *pair) { require.NoError(w, p.b.qp.Close()) },
		func(p *pair) { p.deny(p.b.mem, p.b.mem.at(scratch)) },
	} {
		p := w.pair(pairConfig{srq: s})
		p.b.recv(uint64(2*i), p.b.mem.sge(0, 8))
		p.b.recv(uint64(2*i+1), p.b.mem.sge(0, 8))
		end(p)
		closes(w.T, p.b.id.Done(), "the end of the connection")
		p.b.idle(p.b.rcq)
		for k := range 2 {
			by.a.ok(by.a.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: by.a.mem.sgl(0, 8)}), verbs.WCSend)
			require.EqualValues(w, 2*i+k, by.b.ok(by.b.received(), verbs.WCRecv).ID)
		}
	}
	by.works()
	return tested
}

// srqLastWQE: an event reports that a QP in ERR will consume no more receives.
func srqLastWQE(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	other := w.pair(pairConfig{srq: s})
	p := w.pair(pairConfig{srq: s})
	p.works()
	own := w.pair(pairConfig{}) // without an SRQ there is no such event
	require.NoError(w, own.b.modify(verbs.QPStateErr))
	w.b.noEventOf(verbs.EventQPLastWQEReached)
	require.NoError(w, p.b.modify(verbs.QPStateErr))
	ev, ok := w.b.eventOf(verbs.EventQPLastWQEReached, waitLimit/4)
	if !ok {
		require.False(w, w.f.userSpace(), "no event")
		w.without("last-wqe-event")
		return noted
	}
	require.Same(w, p.b.qp, ev.QP)
	require.Nil(w, ev.SRQ)
	w.b.noEventOf(verbs.EventQPLastWQEReached)
	other.works()
	return tested
}

// eventOf waits for an event of a type and ignores others.
func (h *host) eventOf(t verbs.EventType, limit time.Duration) (verbs.AsyncEvent, bool) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), limit)
	defer cancel()
	for {
		ev, err := h.ctx.WaitEvent(ctx)
		if err != nil {
			requireErr(h.T, err, context.DeadlineExceeded)
			return ev, false
		}
		if ev.Type == t {
			return ev, true
		}
	}
}

// noEventOf requires that no event of a type arrives.
func (h *host) noEventOf(t verbs.EventType) {
	h.Helper()
	ev, ok := h.eventOf(t, quietTime)
	require.False(h, ok, "unexpected %v", ev)
}

func srqCloseBusy(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	err := s.Close()
	requireErr(w.T, err, verbs.ErrBusy)
	require.ErrorContains(w, err, "1 QP")
	p.works()
	require.NoError(w, p.b.id.Close())
	require.NoError(w, p.b.qp.Close())
	require.NoError(w, s.Close())

	pd := w.b.allocPD()
	s, err = pd.CreateSRQ(verbs.SRQAttr{})
	require.NoError(w, err)
	err = pd.Close()
	requireErr(w.T, err, verbs.ErrBusy)
	require.ErrorContains(w, err, "1 SRQ")
	require.NoError(w, s.Close())
	require.NoError(w, pd.Close())
	return tested
}

// srqCloseWithReceives: receives in a closed queue do not complete.
func srqCloseWithReceives(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	for i := range 5 {
		p.b.recv(uint64(i), p.b.mem.sge(0, 8))
	}
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
	require.Zero(w, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	require.NoError(w, p.b.id.Close())
	require.NoError(w, p.b.qp.Close())
	require.NoError(w, s.Close())
	p.b.idle(p.b.rcq)
	require.NoError(w, p.b.mem.Close(), "nothing holds the memory")
	return tested
}

func srqClosed(w *world) outcome {
	s := w.srq(verbs.SRQAttr{})
	if s == nil {
		return noted
	}
	require.NoError(w, s.Close())
	require.NoError(w, s.Close())
	n, err := s.PostRecv(make([]verbs.RecvWR, 1))
	require.Zero(w, n)
	requireClosed(w.T, err)
	_, err = s.Query()
	requireClosed(w.T, err)
	requireClosed(w.T, s.Modify(verbs.SRQAttr{SRQLimit: 1}, verbs.SRQAttrLimit))
	cq := w.b.createCQ(verbs.CQConfig{})
	_, err = w.b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: s})
	requireClosed(w.T, err)
	require.NoError(w, (*verbs.SRQ)(nil).Close())

	pd := w.b.allocPD()
	require.NoError(w, pd.Close())
	_, err = pd.CreateSRQ(verbs.SRQAttr{})
	requireClosed(w.T, err)
	return tested
}

func srqForeign(w *world) outcome {
	if w.srq(verbs.SRQAttr{}) == nil {
		return noted
	}
	o := openHost(w.T, w.f.Passive)
	theirs, err := o.pd.CreateSRQ(verbs.SRQAttr{})
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, theirs.Close()) })
	cq := w.b.createCQ(verbs.CQConfig{})
	_, err = w.b.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, SRQ: theirs})
	requireErr(w.T, err, verbs.ErrForeign)
	return tested
}

// srqOtherPD: the queue may belong to a different PD than its QPs. The keys of its receives must
// belong to one of the two.
func srqOtherPD(w *world) outcome {
	pd := w.b.allocPD()
	s := w.srqIn(pd, verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	inSRQ, inQP := w.b.allocIn(pd, 64, verbs.AccessLocalWrite), w.b.alloc(64, verbs.AccessLocalWrite)
	good, bad := inSRQ, inQP
	if !w.f.userSpace() && !w.kernelIWARP() {
		good, bad = bad, good
	}
	p.b.recv(1, good.sge(0, 8))
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 8)}), verbs.WCSend)
	wc := p.b.received()
	p.b.ok(wc, verbs.WCRecv)
	good.holds(0, p.a.mem.Bytes()[:8])
	same := bad.keeps()
	p.b.recv(2, bad.sge(0, 8))
	p.a.post(verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 8)})
	w.badBuffer(p.b.received())
	same()
	return tested
}

// srqConcurrent: several connections consume receives while several goroutines post them. Every
// receive is used once, and no message is lost.
func srqConcurrent(w *world) outcome {
	const posters, each = 4, 200
	s := w.srq(verbs.SRQAttr{MaxWR: posters * each})
	if s == nil {
		return noted
	}
	pairs := w.sharing(s, 3)
	m := w.b.alloc(8*posters*each, verbs.AccessLocalWrite)
	var posting sync.WaitGroup
	for g := range posters {
		posting.Go(func() {
			for i := range each {
				at := g*each + i
				n, err := s.PostRecv([]verbs.RecvWR{{ID: uint64(at),
					SGL: []verbs.SGE{{Addr: m.at(8 * at), Length: 8, LKey: m.LKey()}}}})
				if n != 1 || err != nil {
					w.Errorf("post %d: %d, %v", at, n, err)
				}
			}
		})
	}
	posting.Wait()
	used := make([]bool, posters*each)
	var mu sync.Mutex
	var traffic sync.WaitGroup
	for k, p := range pairs {
		traffic.Go(func() {
			for i := range posters * each / len(pairs) {
				p.a.mem.put(0, uint64(k)<<32|uint64(i))
				if wc := p.a.run(verbs.SendWR{Opcode: verbs.WRSend,
					SGL: p.a.mem.sgl(0, 8)}); wc.Status != verbs.WCSuccess {
					w.Errorf("send %d of pair %d: %v", i, k, wc.Status)
				}
				wc := p.b.received()
				mu.Lock()
				twice := used[wc.ID]
				used[wc.ID] = true
				mu.Unlock()
				if twice || wc.Status != verbs.WCSuccess || m.get(8*int(wc.ID)) != uint64(k)<<32|uint64(i) ||
					wc.QPNum != p.b.qp.Num() {
					w.Errorf("receive %d of pair %d: %+v, used twice: %v", i, k, wc, twice)
				}
			}
		})
	}
	traffic.Wait()
	for _, p := range pairs {
		p.b.idle(p.b.rcq)
	}
	return tested
}

func srqAlloc(w *world) outcome {
	s := w.srq(verbs.SRQAttr{MaxWR: 256})
	if s == nil {
		return noted
	}
	p := w.pair(pairConfig{srq: s})
	recvs := []verbs.RecvWR{{ID: 1, SGL: p.b.mem.sgl(0, 64)}}
	sends := []verbs.SendWR{{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 64)}}
	const runs = 50
	for round := range 3 {
		bad := 0
		post := func() {
			if n, err := s.PostRecv(recvs); n != 1 || err != nil {
				bad++
			}
		}
		if round == 0 {
			for range runs + 1 { // queues grow to their final size
				post()
			}
		} else {
			w.allocates("SRQ.PostRecv", runs, post)
		}
		for range runs + 1 {
			n, err := p.a.qp.PostSend(sends)
			require.NoError(w, err)
			require.Equal(w, 1, n)
			p.a.ok(p.a.sent(), verbs.WCSend)
			p.b.ok(p.b.received(), verbs.WCRecv)
		}
		require.Zero(w, bad)
	}
	return tested
}
