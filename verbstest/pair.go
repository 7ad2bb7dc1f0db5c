// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// scratch is the size of the region for small transfers on each side of a pair.
const scratch = 4096

// pairConfig configures a pair; zero = the default.
type pairConfig struct {
	cap    verbs.QPCap           // queues of 64 requests, 4 elements, 64 bytes inline, as far as the device permits
	cqe    int                   // 256
	oneCQ  bool                  // sends and receives complete into one CQ
	sigAll bool                  //
	aPD    *verbs.PD             // default: the PDs of the hosts
	bPD    *verbs.PD             //
	srq    *verbs.SRQ            // of the passive side
	typ    verbs.QPType          // RC
	ops    verbs.OpSet           // that the QPs must support
	aChan  [2]*verbs.CompChannel // of the active side's CQs, send and receive; default: a channel of their own
	bChan  [2]*verbs.CompChannel //
	aParam cm.ConnParam          //
	bParam cm.ConnParam          //
	before func(p *pair)         // runs when both QPs are in INIT
	cold   bool                  // only connect, even if the active side must send first
}

// pair is two connected QPs.
type pair struct {
	*world
	a, b *side
	seed byte // of the last exchange
}

// side is one end of a pair.
type side struct {
	*host
	scq, rcq *verbs.CQ
	qp       *verbs.QP
	id       *cm.ID
	mem      *mem
}

// smallCap returns QP sizes that suffice for most tests.
func (h *host) smallCap() verbs.QPCap {
	return verbs.QPCap{MaxSendWR: min(64, h.attr.MaxQPWR), MaxRecvWR: min(64, h.attr.MaxQPWR),
		MaxSendSGE: min(4, h.attr.MaxSGE), MaxRecvSGE: min(4, h.attr.MaxSGE),
		MaxInlineData: min(64, h.attr.MaxInlineData)}
}

// side creates CQs, a QP in RESET and a scratch region.
func (h *host) side(cfg pairConfig, pd *verbs.PD, ch [2]*verbs.CompChannel) *side {
	h.Helper()
	if pd == nil {
		pd = h.pd
	}
	if cfg.cap == (verbs.QPCap{}) {
		cfg.cap = h.smallCap()
	}
	s := &side{host: h}
	s.scq = h.createCQ(verbs.CQConfig{CQE: cfg.cqe, Channel: ch[0]})
	s.rcq = s.scq
	if !cfg.oneCQ {
		s.rcq = h.createCQ(verbs.CQConfig{CQE: cfg.cqe, Channel: ch[1]})
	}
	s.mem = h.allocIn(pd, scratch, allRights)
	s.qp = h.createQP(pd, verbs.QPConfig{SendCQ: s.scq, RecvCQ: s.rcq, SRQ: cfg.srq, Type: cfg.typ, Cap: cfg.cap,
		SigAll: cfg.sigAll, SendOps: cfg.ops})
	return s
}

// pair creates two sides and connects them.
func (w *world) pair(cfg pairConfig) *pair {
	w.Helper()
	p := w.unconnected(cfg)
	p.connect(cfg)
	return p
}

// unconnected creates two sides whose QPs are in RESET.
func (w *world) unconnected(cfg pairConfig) *pair {
	w.Helper()
	acfg := cfg
	acfg.srq = nil
	return &pair{world: w, a: w.a.side(acfg, cfg.aPD, cfg.aChan), b: w.b.side(cfg, cfg.bPD, cfg.bChan)}
}

// connect connects the two sides through the world's listener.
func (p *pair) connect(cfg pairConfig) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), waitLimit)
	defer cancel()
	id := p.resolve(p.ln)
	require.NoError(p, id.BindQP(p.a.qp))
	connected := make(chan error, 1)
	dial := func() {
		err := id.Connect(ctx, p.a.qp, cfg.aParam)
		if err != nil {
			cancel() // there will be nothing to accept
		}
		connected <- err
	}
	// Without before, Accept moves the QP to INIT itself.
	if cfg.before != nil {
		bindINIT(p.b)
		cfg.before(p)
	}
	go dial()
	req, err := p.ln.Accept(ctx)
	if err == nil {
		p.b.id, err = req.Accept(ctx, p.b.qp, cfg.bParam)
	}
	if err != nil {
		cancel()
		require.NoError(p, errors.Join(err, closes(p.T, connected, "Connect")))
	}
	p.closeLater(p.b.id)
	require.NoError(p, closes(p.T, connected, "Connect"))
	p.a.id = id
	if p.f.ActiveFirst && !cfg.cold {
		// The passive side may send after the first message of the active side.
		p.a.ok(p.a.run(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite}), verbs.WCRDMAWrite)
	}
}

// bindINIT moves a QP from RESET to INIT, as BindQP does.
func bindINIT(s *side) {
	s.Helper()
	require.NoError(s, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1,
		AccessFlags: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
}

// resolve returns an ID for a connection to ln.
func (w *world) resolve(ln *cm.Listener) *cm.ID {
	w.Helper()
	id, err := cm.Resolve(within(w.T), ln.Addr().String(), cm.Config{Context: w.a.ctx})
	require.NoError(w, err)
	w.closeLater(id)
	return id
}

func (w *world) closeLater(id *cm.ID) { w.Cleanup(func() { require.NoError(w, id.Close()) }) }

// in returns the pair for use in a subtest's world.
func (p *pair) in(w *world) *pair {
	c := *p
	c.world = w
	c.a, c.b = p.a.in(w.a), p.b.in(w.b)
	return &c
}

func (s *side) in(h *host) *side {
	c := *s
	c.host = h
	c.mem = &mem{MR: s.mem.MR, t: h.T}
	return &c
}

// post posts requests, all of which must be accepted.
func (s *side) post(wrs ...verbs.SendWR) {
	s.Helper()
	n, err := s.qp.PostSend(wrs)
	require.NoError(s, err)
	require.Equal(s, len(wrs), n)
}

// requests returns a valid request from s to peer for every operation that the device supports.
// Those with a response place it in the memory of s; the others take their data from there.
func (w *world) requests(s, peer *side) []verbs.SendWR {
	w.Helper()
	data := s.mem.sgl(0, 8)
	all := []verbs.SendWR{{Opcode: verbs.WRSend, SGL: data}, write(data, peer.mem, 0), read(data, peer.mem, 0)}
	for op, wr := range map[verbs.Op]verbs.SendWR{
		verbs.OpSendImm:  {Opcode: verbs.WRSendWithImm, SGL: data},
		verbs.OpWriteImm: writeImm(data, peer.mem, 0, 1),
		verbs.OpImm64:    {Opcode: verbs.WRImmData},
		verbs.OpSendInv:  {Opcode: verbs.WRSendWithInv, SGL: data, InvalidateRKey: peer.mem.RKey()},
		verbs.OpLocalInv: {Opcode: verbs.WRLocalInv, InvalidateRKey: s.mem.RKey()},
	} {
		if w.has(op) {
			all = append(all, wr)
		}
	}
	for _, c := range atomicOps {
		if w.has(c.op) {
			all = append(all, at(c.wr, s.mem, 0, peer.mem, 0))
		}
	}
	if w.has(verbs.OpBindMW) {
		all = append(all, bind(s.allocMW(), s.mem, 0, 8, windowRights))
	}
	return all
}

// messages lists the operations that carry data to the peer, with the opcodes of both completions.
var messages = []struct {
	op             verbs.Op
	opcode         verbs.WROpcode
	sent, received verbs.WCOpcode // received: 0 = nothing
}{
	{verbs.OpSend, verbs.WRSend, verbs.WCSend, verbs.WCRecv},
	{verbs.OpSendImm, verbs.WRSendWithImm, verbs.WCSend, verbs.WCRecv},
	{verbs.OpSendInv, verbs.WRSendWithInv, verbs.WCSend, verbs.WCRecv},
	{verbs.OpWrite, verbs.WRRDMAWrite, verbs.WCRDMAWrite, 0},
	{verbs.OpWriteImm, verbs.WRRDMAWriteWithImm, verbs.WCRDMAWrite, verbs.WCRecvRDMAWithImm},
}

// everyMessage returns the opcodes of the messages that the active device supports.
func (w *world) everyMessage() []verbs.WROpcode {
	var all []verbs.WROpcode
	for _, m := range messages {
		if w.has(m.op) {
			all = append(all, m.opcode)
		}
	}
	return all
}

// carriesAll requires that every kind of message carries the data of sgl, which equals want, to the
// start of b's memory. dst is the receive for messages whose data is placed in one. A Send with
// Invalidate needs a window at the peer.
func (p *pair) carriesAll(sgl, dst []verbs.SGE, flags verbs.SendFlags, want []byte) {
	p.Helper()
	for _, m := range messages {
		if !p.has(m.op) || m.op == verbs.OpSendInv && p.noWindows() {
			continue
		}
		p.seed++
		p.b.mem.fill(p.seed)
		wr := verbs.SendWR{ID: 8, Opcode: m.opcode, Flags: flags, SGL: sgl}
		switch m.op {
		case verbs.OpSendInv:
			wr.InvalidateRKey = p.window(p.b.mem, 0, 64, windowRights).RKey()
		case verbs.OpWrite, verbs.OpWriteImm:
			wr.RemoteAddr, wr.RKey = p.b.mem.at(0), p.b.mem.RKey()
		}
		if m.received != 0 {
			p.b.recv(7, dst...)
		}
		p.a.ok(p.a.run(wr), m.sent)
		if m.received != 0 {
			wc := p.b.ok(p.b.received(), m.received)
			require.EqualValues(p, len(want), wc.ByteLen, "%v", m.opcode)
		} else {
			p.settle()
		}
		p.b.mem.holds(0, want)
	}
}

// refused posts requests, the first of which must be refused with reason.
func (s *side) refused(reason error, wr verbs.SendWR) {
	s.Helper()
	n, err := s.qp.PostSend([]verbs.SendWR{wr})
	require.Zero(s, n)
	requireErr(s.T, err, reason)
}

// recv posts one receive, to the SRQ if the QP has one.
func (s *side) recv(id uint64, sgl ...verbs.SGE) {
	s.Helper()
	post := s.qp.PostRecv
	if srq := s.qp.SRQ(); srq != nil {
		post = srq.PostRecv
	}
	n, err := post([]verbs.RecvWR{{ID: id, SGL: sgl}})
	require.NoError(s, err)
	require.Equal(s, 1, n)
}

// next waits for a completion of cq.
func (h *host) next(cq *verbs.CQ) verbs.WC {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), waitLimit)
	defer cancel()
	var wcs [1]verbs.WC
	n, err := cq.Wait(ctx, wcs[:])
	require.NoError(h, err)
	require.Equal(h, 1, n)
	return wcs[0]
}

// sent waits for the next completion of the send queue, received for one of the receive queue.
func (s *side) sent() verbs.WC     { s.Helper(); return s.next(s.scq) }
func (s *side) received() verbs.WC { s.Helper(); return s.next(s.rcq) }

// run posts one request, signalled, and waits for its completion.
func (s *side) run(wr verbs.SendWR) verbs.WC {
	s.Helper()
	wr.Flags |= verbs.SendSignaled
	s.post(wr)
	wc := s.sent()
	require.Equal(s, wr.ID, wc.ID)
	return wc
}

// ok requires that wc is the success of an operation on this side's QP.
func (s *side) ok(wc verbs.WC, op verbs.WCOpcode) verbs.WC {
	s.Helper()
	require.Equal(s, verbs.WCSuccess.String(), wc.Status.String(), "status of request %#x", wc.ID)
	require.NoError(s, wc.Err())
	require.Equal(s, op.String(), wc.Opcode.String(), "opcode of request %#x", wc.ID)
	require.Equal(s, s.qp.Num(), wc.QPNum)
	require.Equal(s, op&verbs.WCRecv != 0, wc.IsRecv())
	return wc
}

// idle requires that cq has no completion and receives none.
func (h *host) idle(cq *verbs.CQ) {
	h.Helper()
	h.quiet()
	var wcs [1]verbs.WC
	n, err := cq.Poll(wcs[:])
	require.NoError(h, err)
	require.Zero(h, n, "unexpected completion %+v", wcs[0])
}

// quiet waits long enough for something unwanted to happen.
func (h *host) quiet() { time.Sleep(quietTime) }

// transfer sends n bytes from src of one side to dst of the other and returns the receiver's
// completion.
func transfer(from, to *side, src, dst []verbs.SGE) verbs.WC {
	from.Helper()
	to.recv(7, dst...)
	from.ok(from.run(verbs.SendWR{ID: 8, Opcode: verbs.WRSend, SGL: src}), verbs.WCSend)
	return to.ok(to.received(), verbs.WCRecv)
}

// settle returns once everything that a sent has arrived at b, because a later message has.
func (p *pair) settle() {
	p.Helper()
	transfer(p.a, p.b, nil, nil)
}

// arrived returns once everything that a sent has completed at b, because a later Read was
// answered. It polls no completion of b, so these may be of any kind.
func (p *pair) arrived() {
	p.Helper()
	p.a.ok(p.a.run(verbs.SendWR{ID: 9, Opcode: verbs.WRRDMARead}), verbs.WCRDMARead)
}

// disconnected waits until both sides have noticed the end of the connection.
func (p *pair) disconnected() {
	p.Helper()
	closes(p.T, p.a.id.Done(), "the end of the connection")
	closes(p.T, p.b.id.Done(), "the end of the connection at the peer")
}

// works requires that Sends in both directions, Writes and Reads work on the connection. No other
// request may be outstanding.
func (p *pair) works() {
	p.Helper()
	const n = 300
	p.seed++
	p.a.mem.fill(p.seed)
	p.b.mem.fill(^p.seed)
	want := bytes.Clone(p.a.mem.Bytes()[:n])
	wc := transfer(p.a, p.b, p.a.mem.sgl(0, n), p.b.mem.sgl(16, n))
	require.EqualValues(p, n, wc.ByteLen)
	p.b.mem.holds(16, want)

	wc = transfer(p.b, p.a, p.b.mem.sgl(16, n), p.a.mem.sgl(1000, n))
	require.EqualValues(p, n, wc.ByteLen)
	p.a.mem.holds(1000, want)

	p.a.ok(p.a.run(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, SGL: p.a.mem.sgl(0, n),
		RemoteAddr: p.b.mem.at(2000), RKey: p.b.mem.RKey()}), verbs.WCRDMAWrite)
	p.settle()
	p.b.mem.holds(2000, want)
	if p.a.id != nil {
		if ord, _ := p.a.id.Depths(); ord == 0 {
			return
		}
	}
	wc = p.a.ok(p.a.run(verbs.SendWR{ID: 2, Opcode: verbs.WRRDMARead, SGL: p.a.mem.sgl(3000, n),
		RemoteAddr: p.b.mem.at(2000), RKey: p.b.mem.RKey()}), verbs.WCRDMARead)
	p.a.mem.holds(3000, want)
}
