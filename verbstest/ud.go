// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Datagrams. In each receive, 40 bytes for the Global Routing Header precede the data.
var udTests = []test{
	{"Traffic", udTraffic},
	{"Header", udHeader},
	{"Immediate", udImmediate},
	{"Inline", udInline},
	{"SeveralPeers", udSeveralPeers},
	{"SRQ", udSRQ},
	{"NotOfTheService", udNotOfTheService},
	{"PostInvalid", udPostInvalid},
	{"WrongQKey", udWrongQKey},
	{"WrongQPN", udWrongQPN},
	{"NoReceive", udNoReceive},
	{"ReceiveTooShort", udReceiveTooShort},
	{"LongerThanMTU", udLongerThanMTU},
	{"Errors", udErrors},
}

const grhLen = 40

// ud returns two UD QPs in RTS, and the path from a to b.
func (w *world) ud() (*pair, *verbs.AH) {
	w.Helper()
	if w.noHand(verbs.QPTypeUD) {
		return nil, nil
	}
	p := w.byHand(pairConfig{typ: verbs.QPTypeUD})
	require.Equal(w, verbs.QPTypeUD.String(), p.a.qp.Type().String())
	return p, p.a.createAH(p.a.path(p.b))
}

// datagram returns a Send of n bytes at off of a's region to b.
func (p *pair) datagram(ah *verbs.AH, off, n int) verbs.SendWR {
	p.Helper()
	return verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: p.a.mem.sgl(off, n),
		UD: &verbs.UDDest{AH: ah, RemoteQPN: p.b.qp.Num(), RemoteQKey: handQKey}}
}

// gets posts a receive for n bytes, sends wr and requires that it arrives.
func (p *pair) gets(wr verbs.SendWR, n int) verbs.WC {
	p.Helper()
	const at = 1024
	p.seed++
	p.a.mem.fill(p.seed)
	rest := p.b.mem.keepsBut(at, grhLen+n)
	p.b.recv(5, p.b.mem.sge(at, grhLen+n))
	p.a.ok(p.a.run(wr), verbs.WCSend)
	wc := p.b.ok(p.b.received(), verbs.WCRecv)
	require.EqualValues(p, 5, wc.ID)
	require.EqualValues(p, grhLen+n, wc.ByteLen)
	require.Equal(p, p.a.qp.Num(), wc.SrcQP)
	off := int(wr.SGL[0].Addr - p.a.mem.at(0))
	p.b.mem.holds(at+grhLen, p.a.mem.Bytes()[off:off+n])
	rest()
	return wc
}

func udTraffic(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	for _, n := range []int{0, 1, 7, 512, 1024} {
		p.gets(p.datagram(ah, 100, n), n)
	}
	back := &pair{world: w, a: p.b, b: p.a}
	back.gets(back.datagram(back.a.createAH(back.a.path(back.b)), 0, 64), 64)
	// A list, in order.
	for i := range 5 {
		p.b.recv(uint64(i), p.b.mem.sge(0, 200))
	}
	var list []verbs.SendWR
	for i := range 5 {
		wr := p.datagram(ah, 0, 10+i)
		wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
		list = append(list, wr)
	}
	p.a.post(list...)
	for i := range 5 {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, i, wc.ID)
		require.EqualValues(w, grhLen+10+i, wc.ByteLen)
	}
	return tested
}

// udHeader: the completion reports that there is a header. Over RoCE v2 it is the IP header: an
// IPv4 header occupies the last 20 of the 40 bytes.
func udHeader(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	wc := p.gets(p.datagram(ah, 0, 64), 64)
	require.Equal(w, verbs.WCGRH, wc.Flags)
	grh := p.b.mem.Bytes()[1024 : 1024+grhLen]
	src, dst := p.a.gid().GID, p.b.gid().GID
	back, err := p.b.qp.PD().CreateAHFromWC(&wc, grh, int(p.b.path(p.a).PortNum))
	require.NoError(w, err)
	require.Equal(w, src, back.Attr().GRH.DGID, "the answer goes to the sender")
	require.NoError(w, back.Close())
	if p.a.gid().Type == verbs.GIDTypeRoCEv2 && src.Addr().Is4() {
		require.EqualValues(w, 0x45, grh[20], "version and length of an IPv4 header")
		require.Equal(w, src.Addr(), netip.AddrFrom4([4]byte(grh[32:36])))
		require.Equal(w, dst.Addr(), netip.AddrFrom4([4]byte(grh[36:40])))
		return tested
	}
	require.EqualValues(w, 6, grh[0]>>4)
	require.Equal(w, src, verbs.GID(grh[8:24]))
	require.Equal(w, dst, verbs.GID(grh[24:40]))
	return tested
}

func udImmediate(w *world) outcome {
	p, ah := w.ud()
	if p == nil || !w.has(verbs.OpSendImm) {
		return noted
	}
	for _, imm := range []uint32{0, 1, 0x01020304, 0xffffffff} {
		wr := p.datagram(ah, 0, 32)
		wr.Opcode, wr.Imm = verbs.WRSendWithImm, imm
		wc := p.gets(wr, 32)
		require.NotZero(w, wc.Flags&verbs.WCWithImm)
		require.Equal(w, imm, wc.Imm)
		require.Equal(w, uint64(imm)<<32, wc.Imm64)
	}
	require.Zero(w, p.gets(p.datagram(ah, 0, 32), 32).Flags&verbs.WCWithImm)
	return tested
}

func udInline(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	most := p.a.qp.Cap().MaxInlineData
	if most == 0 {
		w.without("inline")
		return noted
	}
	wr := p.datagram(ah, 0, min(most, 64))
	wr.Flags = verbs.SendInline
	p.gets(wr, min(most, 64))
	return tested
}

// udSeveralPeers: one QP sends to and receives from several peers.
func udSeveralPeers(w *world) outcome {
	p, _ := w.ud()
	if p == nil {
		return noted
	}
	for range 3 {
		s := w.b.side(pairConfig{typ: verbs.QPTypeUD}, nil, [2]*verbs.CompChannel{})
		s.handTo(p.a, verbs.QPStateRTS)
		to := &pair{world: w, a: p.a, b: s}
		to.gets(to.datagram(p.a.createAH(p.a.path(s)), 0, 40), 40)
		from := &pair{world: w, a: s, b: p.a}
		from.gets(from.datagram(s.createAH(s.path(p.a)), 0, 40), 40)
	}
	return tested
}

func udSRQ(w *world) outcome {
	if w.noHand(verbs.QPTypeUD) {
		return noted
	}
	s := w.srq(verbs.SRQAttr{MaxWR: 16})
	if s == nil {
		return noted
	}
	for range 2 {
		p := w.byHand(pairConfig{typ: verbs.QPTypeUD, srq: s})
		p.gets(p.datagram(p.a.createAH(p.a.path(p.b)), 0, 40), 40)
	}
	return tested
}

func udNotOfTheService(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm, verbs.WRRDMARead,
		verbs.WRAtomicFetchAndAdd, verbs.WRAtomicCmpAndSwp, verbs.WRSendWithInv, verbs.WRLocalInv, verbs.WRBindMW} {
		wr := p.datagram(ah, 0, 8)
		wr.Opcode, wr.RemoteAddr, wr.RKey = op, p.b.mem.at(0), p.b.mem.RKey()
		p.a.refused(verbs.ErrNotSupported, wr)
	}
	p.gets(p.datagram(ah, 0, 8), 8)
	return tested
}

// udPostInvalid: a datagram needs an open address handle of the QP's PD.
func udPostInvalid(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	foreign, err := w.a.allocPD().CreateAH(ah.Attr())
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, foreign.Close()) })
	closed, err := w.a.pd.CreateAH(ah.Attr())
	require.NoError(w, err)
	require.NoError(w, closed.Close())
	for _, c := range []struct {
		reason error
		dest   *verbs.UDDest
	}{
		{verbs.ErrInvalid, nil},
		{verbs.ErrInvalid, &verbs.UDDest{RemoteQPN: 1}},
		{verbs.ErrInvalid, &verbs.UDDest{AH: ah, RemoteQPN: 1 << 24}},
		{verbs.ErrForeign, &verbs.UDDest{AH: foreign, RemoteQPN: p.b.qp.Num()}},
		{verbs.ErrClosed, &verbs.UDDest{AH: closed, RemoteQPN: p.b.qp.Num()}},
	} {
		wr := p.datagram(ah, 0, 8)
		wr.UD = c.dest
		p.a.refused(c.reason, wr)
	}
	p.gets(p.datagram(ah, 0, 8), 8)
	return tested
}

// dropped sends a datagram that must not arrive, followed by one that must.
func (p *pair) dropped(ah *verbs.AH, wr verbs.SendWR) {
	p.Helper()
	same := p.b.mem.keeps()
	p.b.recv(6, p.b.mem.sge(0, 200))
	p.a.ok(p.a.run(wr), verbs.WCSend)
	p.b.idle(p.b.rcq)
	same()
	p.a.ok(p.a.run(p.datagram(ah, 0, 20)), verbs.WCSend)
	wc := p.b.ok(p.b.received(), verbs.WCRecv)
	require.EqualValues(p, 6, wc.ID)
	require.EqualValues(p, grhLen+20, wc.ByteLen)
	require.Equal(p, verbs.QPStateRTS.String(), p.b.qp.State().String())
}

func udWrongQKey(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	wr := p.datagram(ah, 0, 20)
	wr.UD.RemoteQKey ^= 1
	p.dropped(ah, wr)
	return tested
}

func udWrongQPN(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	gone := w.b.side(pairConfig{typ: verbs.QPTypeUD}, nil, [2]*verbs.CompChannel{})
	wr := p.datagram(ah, 0, 20)
	wr.UD.RemoteQPN = gone.qp.Num()
	require.NoError(w, gone.qp.Close())
	p.dropped(ah, wr)
	return tested
}

func udNoReceive(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	p.a.ok(p.a.run(p.datagram(ah, 0, 20)), verbs.WCSend)
	p.b.idle(p.b.rcq)
	p.gets(p.datagram(ah, 0, 20), 20)
	return tested
}

// udReceiveTooShort: a datagram that is too long for its receive is not placed, not even in part.
// Whether the receive is consumed depends on the device.
func udReceiveTooShort(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	rest := p.b.mem.keepsBut(0, grhLen+10)
	p.b.recv(6, p.b.mem.sge(0, grhLen+10))
	p.a.ok(p.a.run(p.datagram(ah, 0, 11)), verbs.WCSend)
	p.b.noSuccess(p.b.rcq)
	rest()
	return tested
}

// noSuccess requires that no request of cq succeeds.
func (h *host) noSuccess(cq *verbs.CQ) {
	h.Helper()
	h.quiet()
	var wcs [4]verbs.WC
	n, err := cq.Poll(wcs[:])
	require.NoError(h, err)
	for _, wc := range wcs[:n] {
		require.NotEqual(h, verbs.WCSuccess.String(), wc.Status.String(), "request %d", wc.ID)
	}
}

func udLongerThanMTU(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	port, err := w.a.ctx.QueryPort(1)
	require.NoError(w, err)
	n := port.ActiveMTU.Bytes()
	src, dst := w.a.alloc(n+1, 0), w.b.alloc(n+1+grhLen, verbs.AccessLocalWrite)
	wr := p.datagram(ah, 0, 0)
	wr.Flags = verbs.SendSignaled
	p.b.recv(1, dst.sge(0, dst.Len()))
	wr.SGL = src.sgl(0, n+1)
	if _, err := p.a.qp.PostSend([]verbs.SendWR{wr}); err == nil {
		p.a.sent()
	}
	p.b.noSuccess(p.b.rcq)
	return tested
}

func udErrors(w *world) outcome {
	p, ah := w.ud()
	if p == nil {
		return noted
	}
	p.b.recv(1, p.b.mem.sge(0, 100))
	require.NoError(w, p.b.modify(verbs.QPStateErr))
	p.b.flushed(p.b.rcq, 1)
	p.a.ok(p.a.run(p.datagram(ah, 0, 20)), verbs.WCSend)
	require.NoError(w, p.b.modify(verbs.QPStateReset))
	p.b.handTo(p.a, verbs.QPStateRTS)
	p.gets(p.datagram(ah, 0, 20), 20)

	// A request with invalid memory fails.
	wr := p.datagram(ah, 0, 20)
	wr.SGL = badLocal(p.a, "UnknownKey", 20)
	w.badSource(p.a.run(wr))
	return tested
}
