// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Limits on the number of objects require a device with small limits; the provider's tests check
// them.
var limitTests = []test{
	{"CQE", limitCQE},
	{"MRSize", limitMRSize},
	{"QPCap", limitQPCap},
	{"ManyQPs", limitManyQPs},
	{"SGE", limitSGE},
	{"Inline", limitInline},
	{"MessageSize", limitMessageSize},
	{"SendQueue", limitSendQueue},
	{"RecvQueue", limitRecvQueue},
	{"Depth", limitDepth},
}

func limitCQE(w *world) outcome {
	most := w.a.attr.MaxCQE
	_, err := w.a.ctx.CreateCQ(verbs.CQConfig{CQE: most + 1})
	requireLimit(w.T, err, "max_cqe", uint64(most), uint64(most+1))
	_, err = w.a.ctx.CreateCQ(verbs.CQConfig{CQE: math.MaxInt})
	requireLimit(w.T, err, "max_cqe", uint64(most), math.MaxInt)
	require.GreaterOrEqual(w, w.a.createCQ(verbs.CQConfig{CQE: most}).CQE(), most)
	return tested
}

func limitMRSize(w *world) outcome {
	most := w.a.attr.MaxMRSize
	if most >= math.MaxInt {
		// The limit exceeds any possible argument and any memory.
		_, err := w.a.pd.AllocMR(math.MaxInt-1<<20, verbs.AccessLocalWrite)
		require.Error(w, err)
		w.without("mr-size-limit")
		return noted
	}
	_, err := w.a.pd.AllocMR(int(most)+1, verbs.AccessLocalWrite)
	requireLimit(w.T, err, "max_mr_size", most, most+1)
	_, err = w.a.pd.AllocMR(math.MaxInt, verbs.AccessLocalWrite)
	requireLimit(w.T, err, "max_mr_size", most, math.MaxInt)
	return tested
}

func limitQPCap(w *world) outcome {
	a := w.a.attr
	cq := w.a.createCQ(verbs.CQConfig{})
	for _, c := range []struct {
		name string
		most int
		set  func(c *verbs.QPCap, v int)
	}{
		{"max_qp_wr (send)", a.MaxQPWR, func(c *verbs.QPCap, v int) { c.MaxSendWR = v }},
		{"max_qp_wr (receive)", a.MaxQPWR, func(c *verbs.QPCap, v int) { c.MaxRecvWR = v }},
		{"max_sge (send)", a.MaxSGE, func(c *verbs.QPCap, v int) { c.MaxSendSGE = v }},
		{"max_sge (receive)", a.MaxSGE, func(c *verbs.QPCap, v int) { c.MaxRecvSGE = v }},
		{"max_inline_data", a.MaxInlineData, func(c *verbs.QPCap, v int) { c.MaxInlineData = v }},
	} {
		for _, v := range []int{c.most + 1, math.MaxInt} {
			var cap verbs.QPCap
			c.set(&cap, v)
			_, err := w.a.pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: cap})
			requireLimit(w.T, err, c.name, uint64(c.most), uint64(v))
		}
		var cap verbs.QPCap
		c.set(&cap, c.most)
		w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: cap})
	}
	return tested
}

// limitManyQPs creates many small QPs in one context, so that their queues begin on every page of
// its mapped memory.
func limitManyQPs(w *world) outcome {
	cq := w.a.createCQ(verbs.CQConfig{})
	for range min(150, w.a.attr.MaxQP/2) {
		w.a.createQP(w.a.pd, verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
	}
	return tested
}

func limitSGE(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendSGE: 2, MaxRecvSGE: 2}})
	most := p.a.qp.Cap().MaxSendSGE
	for _, op := range w.everyMessage() {
		n, err := p.a.qp.PostSend([]verbs.SendWR{{Opcode: op, SGL: make([]verbs.SGE, most+1)}})
		require.Zero(w, n)
		requireLimit(w.T, err, "max_send_sge", uint64(most), uint64(most+1))
	}
	most = p.b.qp.Cap().MaxRecvSGE
	n, err := p.b.qp.PostRecv([]verbs.RecvWR{{SGL: make([]verbs.SGE, most+1)}})
	require.Zero(w, n)
	requireLimit(w.T, err, "max_recv_sge", uint64(most), uint64(most+1))
	if rd := w.a.attr.MaxSGERd; rd < p.a.qp.Cap().MaxSendSGE {
		n, err = p.a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, SGL: make([]verbs.SGE, rd+1)}})
		require.Zero(w, n)
		requireLimit(w.T, err, "max_sge_rd", uint64(rd), uint64(rd+1))
	}
	p.works()
	// With the device's maximum.
	both := min(w.a.attr.MaxSGE, w.b.attr.MaxSGE)
	full := w.pair(pairConfig{cap: verbs.QPCap{MaxSendSGE: both, MaxRecvSGE: both}})
	var src, dst []verbs.SGE
	var want []byte
	for i := range full.a.qp.Cap().MaxSendSGE {
		src = append(src, full.a.mem.sge(100*i, 3+i))
		want = append(want, full.a.mem.Bytes()[100*i:100*i+3+i]...)
	}
	for i := range full.b.qp.Cap().MaxRecvSGE - 1 {
		dst = append(dst, full.b.mem.sge(i, 1))
	}
	dst = append(dst, full.b.mem.sge(len(dst), scratch-len(dst)))
	full.carriesAll(src, dst, 0, want)
	return tested
}

func limitInline(w *world) outcome {
	for _, ask := range []int{0, 1, w.a.attr.MaxInlineData} {
		p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendSGE: 2, MaxInlineData: ask}})
		most := p.a.qp.Cap().MaxInlineData
		for _, sgl := range [][]verbs.SGE{p.a.mem.sgl(0, most+1), {p.a.mem.sge(0, most), p.a.mem.sge(0, 1)}} {
			for _, op := range w.everyMessage() {
				n, err := p.a.qp.PostSend([]verbs.SendWR{{Opcode: op, Flags: verbs.SendInline, SGL: sgl}})
				require.Zero(w, n)
				requireLimit(w.T, err, "max_inline_data", uint64(most), uint64(most+1))
			}
		}
		p.carriesAll(p.a.mem.sgl(0, most), p.b.mem.sgl(0, scratch), verbs.SendInline, p.a.mem.Bytes()[:most])
	}
	return tested
}

// limitMessageSize: on every fabric, the total length of a message's elements must be below 4 GiB.
func limitMessageSize(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendSGE: 2}})
	half := verbs.SGE{Addr: p.a.mem.at(0), Length: 1 << 31, LKey: p.a.mem.LKey()}
	for _, op := range w.everyMessage() {
		n, err := p.a.qp.PostSend([]verbs.SendWR{{Opcode: op, SGL: []verbs.SGE{half, half}}})
		require.Zero(w, n)
		requireLimit(w.T, err, "max_msg_sz", math.MaxUint32, 1<<32)
	}
	p.works()
	return tested
}

// limitSendQueue fills a send queue with Reads. With a depth of 1 they are sent one at a time.
func limitSendQueue(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 4}, aParam: cm.ConnParam{InitiatorDepth: 1},
		bParam: cm.ConnParam{ResponderResources: 1}})
	const n = 1 << 20
	most := p.a.qp.Cap().MaxSendWR
	src, dst := w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite)
	wrs := make([]verbs.SendWR, most+2)
	for i := range wrs {
		wrs[i] = read(dst.sgl(0, n), src, 0)
		wrs[i].ID, wrs[i].Flags = uint64(i), verbs.SendSignaled
	}
	posted, err := p.a.qp.PostSend(wrs)
	require.Equal(w, most, posted)
	requireErr(w.T, err, verbs.ErrQueueFull)
	for i := range most {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
	}
	p.a.idle(p.a.scq)
	p.a.post(wrs[:most]...)
	for i := range most {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
	}
	// There is no room for a request of any kind.
	same := p.b.mem.keeps()
	for _, wr := range w.requests(p.a, p.b) {
		wrs[most] = wr
		posted, err := p.a.qp.PostSend(wrs[:most+1])
		require.Equal(w, most, posted, "%v", wr.Opcode)
		requireErr(w.T, err, verbs.ErrQueueFull)
		for i := range most {
			require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
		}
	}
	same()
	p.works()
	return tested
}

func limitRecvQueue(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxRecvWR: 4}})
	most := p.b.qp.Cap().MaxRecvWR
	wrs := make([]verbs.RecvWR, most+2)
	for i := range wrs {
		wrs[i].ID = uint64(i)
	}
	n, err := p.b.qp.PostRecv(wrs)
	require.Equal(w, most, n)
	requireErr(w.T, err, verbs.ErrQueueFull)
	n, err = p.b.qp.PostRecv(wrs[:1])
	require.Zero(w, n)
	requireErr(w.T, err, verbs.ErrQueueFull)
	for i := range most {
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	}
	p.works()
	return tested
}

// limitDepth requests a depth above the device's maximum.
func limitDepth(w *world) outcome {
	for _, c := range []struct {
		field string
		most  int
		param func(v int) cm.ConnParam
	}{
		{"InitiatorDepth", w.a.attr.MaxQPInitRdAtom,
			func(v int) cm.ConnParam { return cm.ConnParam{InitiatorDepth: v} }},
		{"ResponderResources", w.a.attr.MaxQPRdAtom,
			func(v int) cm.ConnParam { return cm.ConnParam{ResponderResources: v} }},
	} {
		for _, v := range []int{c.most + 1, math.MaxInt} {
			err := w.connectError(c.param(v))
			requireLimit(w.T, err, c.field, uint64(c.most), uint64(v))
		}
		for _, v := range []int{-2, math.MinInt} {
			err := w.connectError(c.param(v))
			requireErr(w.T, err, verbs.ErrInvalid)
			require.ErrorContains(w, err, c.field)
		}
	}
	return tested
}

// connectError tries to connect with a parameter that must be refused before the peer is contacted.
func (w *world) connectError(param cm.ConnParam) error {
	w.Helper()
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	err := w.resolve(w.ln).Connect(within(w.T), s.qp, param)
	require.Error(w, err)
	return err
}
