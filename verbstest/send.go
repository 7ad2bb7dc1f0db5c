// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var sendTests = []test{
	{"Sizes", sendSizes},
	{"EverySmallSize", sendEverySmallSize},
	{"ZeroLength", sendZeroLength},
	{"Gather", sendGather},
	{"BothWays", sendBothWays},
	{"Large", sendLarge},
	{"Inline", sendInline},
	{"InlineGather", sendInlineGather},
	{"Unsignalled", sendUnsignalled},
	{"SigAll", sendSigAll},
	{"Solicited", sendSolicited},
	{"Immediate", sendImmediate},
	{"ShorterThanReceive", sendShorter},
	{"LongerThanReceive", sendLonger},
	{"NoReceive", sendNoReceive},
	{"BadSource", sendBadSource},
	{"BadSourceUnsignalled", sendBadSourceUnsignalled},
	{"BadReceive", sendBadReceive},
	{"UnknownFlags", sendUnknownFlags},
}

// sizes are message lengths around those at which transports segment messages: headers, common
// MTUs, 64 KiB, 1 MiB.
var sizes = []int{1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 209, 210, 211, 212, 255, 256, 257, 1023, 1024, 1025,
	1439, 1440, 1441, 1459, 1460, 1461, 4095, 4096, 4097, 8999, 9000, 65483, 65484, 65507, 65535, 65536, 65537,
	1<<20 - 1, 1 << 20, 1<<20 + 1}

// bigMemory registers a region on either side that is larger than all of sizes.
func (p *pair) bigMemory() (src, dst *mem) {
	p.Helper()
	return p.a.alloc(1<<20+64, allRights), p.b.alloc(1<<20+64, allRights)
}

func sendSizes(w *world) outcome {
	p := w.pair(pairConfig{})
	src, dst := p.bigMemory()
	for i, n := range sizes {
		src.fill(byte(i))
		dst.fill(byte(i + 100))
		off := i % 9
		same, rest := src.keeps(), dst.keepsBut(7, n)
		wc := transfer(p.a, p.b, src.sgl(off, n), dst.sgl(7, n))
		require.EqualValues(w, n, wc.ByteLen)
		require.Zero(w, wc.Flags)
		dst.holds(7, src.Bytes()[off:off+n])
		rest()
		same()
	}
	return tested
}

// sendEverySmallSize keeps the queues full of messages of every length from 0 to 520.
func sendEverySmallSize(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64}})
	const most, window, slot = 520, 32, 528
	src, dst := p.a.alloc(most, 0), p.b.alloc(window*slot, verbs.AccessLocalWrite)
	posted := 0
	for done := 0; done <= most; done++ {
		for ; posted <= most && posted < done+window; posted++ {
			p.b.recv(uint64(posted), dst.sge(posted%window*slot, slot))
			p.a.post(verbs.SendWR{ID: uint64(posted), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
				SGL: src.sgl(most-posted, posted)})
		}
		require.EqualValues(w, done, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, done, wc.ID)
		require.EqualValues(w, done, wc.ByteLen)
		dst.holds(done%window*slot, src.Bytes()[most-done:])
	}
	return tested
}

func sendZeroLength(w *world) outcome {
	p := w.pair(pairConfig{})
	same := p.b.mem.keeps()
	// Without elements, with an empty one; into a receive with a buffer and into one without.
	for _, src := range [][]verbs.SGE{nil, p.a.mem.sgl(0, 0)} {
		for _, dst := range [][]verbs.SGE{nil, p.b.mem.sgl(0, 0), p.b.mem.sgl(0, 100)} {
			require.Zero(w, transfer(p.a, p.b, src, dst).ByteLen)
		}
	}
	same()
	p.works()
	return tested
}

func sendGather(w *world) outcome {
	p := w.pair(pairConfig{})
	nsge := min(p.a.qp.Cap().MaxSendSGE, p.b.qp.Cap().MaxRecvSGE)
	one, two := p.a.alloc(6000, 0), p.a.register(make([]byte, 3001)[1:], 0)
	two.fill(99)
	x, y := p.b.alloc(6000, verbs.AccessLocalWrite), p.b.register(make([]byte, 4001)[1:], verbs.AccessLocalWrite)
	for i, lens := range [][4]int{{1, 2, 3, 4}, {1000, 0, 1, 1499}, {0, 0, 0, 7}, {4000, 1, 900, 3}, {1, 1, 1, 0},
		{3, 1461, 1460, 0}} {
		x.fill(byte(i))
		y.fill(byte(i))
		src := []verbs.SGE{one.sge(3, lens[0]), two.sge(0, lens[1]), one.sge(4100, lens[2]),
			two.sge(1500, lens[3])}[:nsge]
		var want []byte
		for k, part := range [][]byte{one.Bytes()[3:], two.Bytes(), one.Bytes()[4100:], two.Bytes()[1500:]} {
			if k < nsge {
				want = append(want, part[:lens[k]]...)
			}
		}
		// The sink's elements have other lengths and are longer than the message.
		dst := []verbs.SGE{x.sge(0, 2), y.sge(11, 1200), x.sge(5, 0), x.sge(500, 5000)}
		into := [][]byte{x.Bytes()[0:2], y.Bytes()[11 : 11+1200], nil, x.Bytes()[500:5500]}
		if nsge < 4 {
			dst, into = dst[3:], into[3:]
		}
		wc := transfer(p.a, p.b, src, dst)
		require.EqualValues(w, len(want), wc.ByteLen)
		var got []byte
		for _, part := range into {
			got = append(got, part...)
		}
		requireSame(w.T, want, got[:len(want)])
		x.holds(5500, pattern(byte(i), 6000)[5500:])
		x.holds(2, pattern(byte(i), 6000)[2:500])
		y.holds(0, pattern(byte(i), 11))
		y.holds(1211, pattern(byte(i), 4000)[1211:])
	}
	return tested
}

// sendBothWays: both sides send concurrently, and must not wait for each other.
func sendBothWays(w *world) outcome {
	p := w.pair(pairConfig{})
	const n, count = 20000, 16
	type end struct {
		s        *side
		src, dst *mem
	}
	ends := []end{{p.a, p.a.alloc(n, 0), p.a.alloc(n*count, verbs.AccessLocalWrite)},
		{p.b, p.b.alloc(n, 0), p.b.alloc(n*count, verbs.AccessLocalWrite)}}
	ends[0].src.fill(1)
	ends[1].src.fill(2)
	for _, e := range ends {
		for i := range count {
			e.s.recv(uint64(i), e.dst.sge(i*n, n))
		}
	}
	for i := range count {
		for _, e := range ends {
			e.s.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: e.src.sgl(0, n)})
		}
	}
	for k, e := range ends {
		for i := range count {
			require.EqualValues(w, i, e.s.ok(e.s.sent(), verbs.WCSend).ID)
			require.EqualValues(w, i, e.s.ok(e.s.received(), verbs.WCRecv).ID)
			e.dst.holds(i*n, ends[1-k].src.Bytes())
		}
	}
	return tested
}

// sendLarge sends a message that is larger than any buffer between the two sides.
func sendLarge(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 8 << 20
	src, dst := p.a.alloc(n, 0), p.b.alloc(n+8, verbs.AccessLocalWrite)
	rest := dst.keepsBut(8, n)
	p.b.recv(1, dst.sge(8, n))
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: src.sgl(0, n)})
	p.a.ok(p.a.sent(), verbs.WCSend)
	require.EqualValues(w, n, p.b.ok(p.b.received(), verbs.WCRecv).ByteLen)
	dst.holds(8, src.Bytes())
	rest()
	return tested
}

// sendInline: the program may reuse the memory when the post returns.
func sendInline(w *world) outcome {
	p := w.pair(pairConfig{})
	most := p.a.qp.Cap().MaxInlineData
	if most == 0 {
		_, err := p.a.qp.PostSend(
			[]verbs.SendWR{{Opcode: verbs.WRSend, Flags: verbs.SendInline, SGL: p.a.mem.sgl(0, 1)}})
		requireLimit(w.T, err, "max_inline_data", 0, 1)
		w.without("inline")
		return noted
	}
	const count = 32
	for i := range count {
		p.b.recv(uint64(i), p.b.mem.sge(i*128, 128))
	}
	for i := range count {
		n := i * most / (count - 1)
		p.a.mem.fill(byte(i))
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled,
			SGL: p.a.mem.sgl(0, n)})
		p.a.mem.fill(0xee)
	}
	for i := range count {
		n := i * most / (count - 1)
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, i, wc.ID)
		require.EqualValues(w, n, wc.ByteLen)
		p.b.mem.holds(i*128, pattern(byte(i), min(n, 128)))
	}
	// An inline Write behaves the same.
	p.a.mem.fill(77)
	p.a.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendInline, SGL: p.a.mem.sgl(0, most),
		RemoteAddr: p.b.mem.at(100), RKey: p.b.mem.RKey()})
	p.a.mem.fill(0xee)
	p.settle()
	p.b.mem.holds(100, pattern(77, most))
	return tested
}

func sendInlineGather(w *world) outcome {
	p := w.pair(pairConfig{})
	most, nsge := p.a.qp.Cap().MaxInlineData, p.a.qp.Cap().MaxSendSGE
	var sgl []verbs.SGE
	var want []byte
	for i := range nsge {
		n := most / nsge
		sgl = append(sgl, p.a.mem.sge(i*1000, n))
		want = append(want, p.a.mem.Bytes()[i*1000:i*1000+n]...)
	}
	p.b.recv(1, p.b.mem.sge(0, scratch))
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, SGL: sgl})
	p.a.mem.fill(0)
	p.a.ok(p.a.sent(), verbs.WCSend)
	require.EqualValues(w, len(want), p.b.ok(p.b.received(), verbs.WCRecv).ByteLen)
	p.b.mem.holds(0, want)
	return tested
}

// sendUnsignalled: requests without the flag have no completion. Their queue entries are freed by
// the next signalled one.
func sendUnsignalled(w *world) outcome {
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 16, MaxRecvWR: 64}})
	for round := range 20 {
		for i := range 16 {
			p.b.recv(uint64(i), p.b.mem.sge(i*16, 16))
		}
		for i := range 15 {
			p.a.post(verbs.SendWR{ID: uint64(100 + i), Opcode: verbs.WRSend, SGL: p.a.mem.sgl(i, 16)})
		}
		last := verbs.SendWR{ID: uint64(round), Opcode: verbs.WRSend, SGL: p.a.mem.sgl(15, 16)}
		p.a.ok(p.a.run(last), verbs.WCSend)
		for i := range 16 {
			require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
			p.b.mem.holds(i*16, p.a.mem.Bytes()[i:i+16])
		}
	}
	p.a.idle(p.a.scq)
	return tested
}

func sendSigAll(w *world) outcome {
	p := w.pair(pairConfig{sigAll: true})
	p.b.recv(1)
	p.a.post(verbs.SendWR{ID: 5, Opcode: verbs.WRSend}, verbs.SendWR{ID: 6, Opcode: verbs.WRRDMAWrite})
	require.EqualValues(w, 5, p.a.ok(p.a.sent(), verbs.WCSend).ID)
	require.EqualValues(w, 6, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	p.b.ok(p.b.received(), verbs.WCRecv)
	return tested
}

// sendSolicited: the flag does not change the message. The tests of CQs check its effect on events.
func sendSolicited(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, n := range []int{0, 1, 2000} {
		p.b.recv(1, p.b.mem.sge(0, 2000))
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSolicited, SGL: p.a.mem.sgl(0, n)}),
			verbs.WCSend)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, n, wc.ByteLen)
		require.Zero(w, wc.Flags)
		p.b.mem.holds(0, p.a.mem.Bytes()[:n])
	}
	return tested
}

// sendImmediate tests Send with a 32-bit immediate, which iWARP lacks.
func sendImmediate(w *world) outcome {
	p := w.pair(pairConfig{})
	wr := verbs.SendWR{ID: 3, Opcode: verbs.WRSendWithImm, SGL: p.a.mem.sgl(0, 100), Imm: 0x01020304}
	if p.lacks(verbs.OpSendImm, wr) {
		return noted
	}
	p.b.recv(4, p.b.mem.sge(0, 100))
	p.a.ok(p.a.run(wr), verbs.WCSend)
	wc := p.b.ok(p.b.received(), verbs.WCRecv)
	require.Equal(w, verbs.WCWithImm, wc.Flags)
	require.EqualValues(w, 0x01020304, wc.Imm)
	require.EqualValues(w, 100, wc.ByteLen)
	p.b.mem.holds(0, p.a.mem.Bytes()[:100])
	return tested
}

func sendShorter(w *world) outcome {
	p := w.pair(pairConfig{})
	rest := p.b.mem.keepsBut(10, 50)
	require.EqualValues(w, 50, transfer(p.a, p.b, p.a.mem.sgl(0, 50), p.b.mem.sgl(10, 1000)).ByteLen)
	p.b.mem.holds(10, p.a.mem.Bytes()[:50])
	rest()
	return tested
}

func sendLonger(w *world) outcome {
	by := w.pair(pairConfig{})
	for _, c := range []struct {
		name      string
		size, fit int
	}{{"OneByte", 101, 100}, {"NoBuffer", 1, 0}, {"ManySegments", 1 << 20, 1<<20 - 1}} {
		w.sub(c.name, func(w *world) outcome {
			p := w.pair(pairConfig{})
			src, dst := p.a.alloc(c.size, 0), p.b.alloc(c.size+64, verbs.AccessLocalWrite)
			src.fill(1)
			rest := dst.keepsBut(32, c.fit)
			p.a.recv(9)
			p.b.recv(1, dst.sge(32, c.fit))
			p.b.recv(2, dst.sge(32, c.fit))
			wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: src.sgl(0, c.size)})
			if w.iwarp() {
				p.refusal(wc, fault{status: verbs.WCRemInvReqErr}, true)
			} else {
				w.tells(wc, verbs.WCRemInvReqErr)
			}
			got := p.b.received()
			require.EqualValues(w, 1, got.ID)
			w.tells(got, verbs.WCLocLenErr)
			p.b.flushed(p.b.rcq, 2)
			p.a.flushed(p.a.rcq, 9)
			p.broken(p.a, p.b, fault{1, 2, 0x05, verbs.WCRemInvReqErr})
			rest()
			by.in(w).works()
			return tested
		})
	}
	return tested
}

// sendNoReceive: iWARP terminates the connection; on InfiniBand the requester waits.
func sendNoReceive(w *world) outcome {
	by := w.pair(pairConfig{})
	if !w.iwarp() {
		p := w.pair(pairConfig{})
		p.a.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 100)})
		p.a.idle(p.a.scq)
		by.works()
		p.b.recv(1, p.b.mem.sge(0, 100))
		p.b.ok(p.b.received(), verbs.WCRecv)
		p.a.ok(p.a.sent(), verbs.WCSend)
		return tested
	}
	sends := []verbs.SendWR{{Opcode: verbs.WRSend}, {Opcode: verbs.WRSend, Flags: verbs.SendSolicited}}
	if w.has(verbs.OpSendInv) && !w.noWindows() {
		sends = append(sends, verbs.SendWR{Opcode: verbs.WRSendWithInv},
			verbs.SendWR{Opcode: verbs.WRSendWithInv, Flags: verbs.SendSolicited})
	}
	for _, wr := range sends {
		p := w.pair(pairConfig{})
		if wr.Opcode == verbs.WRSendWithInv {
			wr.InvalidateRKey = p.window(p.b.mem, 0, 64, windowRights).RKey()
		}
		same := p.b.mem.keeps()
		p.a.recv(9)
		wr.ID, wr.SGL = 3, p.a.mem.sgl(0, 100)
		p.refusal(p.a.run(wr), fault{status: verbs.WCRemInvReqErr}, true)
		p.broken(p.a, p.b, fault{1, 2, 0x02, verbs.WCRemInvReqErr})
		p.a.flushed(p.a.rcq, 9)
		same()
		by.works()
	}
	return tested
}

// badLocals lists the ways in which an element's memory can be invalid.
var badLocals = []string{"UnknownKey", "WrongKey", "Freed", "ForeignPD", "OnePast", "OneBefore", "Wrap",
	"SecondElement"}

// badLocal returns a list for n bytes on side s that is invalid in the named way.
func badLocal(s *side, name string, n int) []verbs.SGE {
	s.Helper()
	pd := s.qp.PD()
	if name == "ForeignPD" {
		pd = s.allocPD()
	}
	m := s.allocIn(pd, n+16, verbs.AccessLocalWrite)
	bad := m.sge(0, n)
	switch name {
	case "UnknownKey":
		bad.LKey ^= 0x5a5a5a00
	case "WrongKey":
		bad.LKey ^= 1
	case "Freed":
		require.NoError(s, m.Close())
	case "OnePast":
		bad.Addr = m.at(m.Len()-n) + 1
	case "OneBefore":
		bad.Addr--
	case "Wrap":
		bad.Addr = ^uint64(0) - 3
	case "SecondElement":
		bad.Addr--
		bad.Length--
		return []verbs.SGE{m.sge(0, 1), bad}
	}
	return []verbs.SGE{bad}
}

// sendBadSource: the error is local and is reported locally. The peer notices only the end of the
// stream.
func sendBadSource(w *world) outcome {
	by := w.pair(pairConfig{})
	for _, name := range badLocals {
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite} {
			w.sub(name+"/"+op.String(), func(w *world) outcome {
				p := w.pair(pairConfig{})
				p.localFault(verbs.SendWR{ID: 3, Opcode: op, SGL: badLocal(p.a, name, 100),
					RemoteAddr: p.b.mem.at(0), RKey: p.b.mem.RKey()}, verbs.WCLocProtErr)
				by.in(w).works()
				return tested
			})
		}
	}
	return tested
}

// sendBadSourceUnsignalled: a failed request has a completion even if it is unsignalled.
func sendBadSourceUnsignalled(w *world) outcome {
	p := w.pair(pairConfig{})
	p.b.recv(1)
	p.a.post(verbs.SendWR{ID: 2, Opcode: verbs.WRSend},
		verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: badLocal(p.a, "UnknownKey", 100)},
		verbs.SendWR{ID: 4, Opcode: verbs.WRSend})
	wc := p.a.sent()
	early := p.flushedEarly(wc, 2)
	if early {
		wc = p.a.sent()
	}
	require.EqualValues(w, 3, wc.ID, "the one before was a success and makes none")
	w.badSource(wc)
	p.a.flushed(p.a.scq, 4)
	p.b.arrivedOr(early, 1)
	return tested
}

// flushedEarly reports whether the valid request id was flushed together with the invalid one after
// it: recent rxe flushes it if its response has not arrived.
func (p *pair) flushedEarly(wc verbs.WC, id uint64) bool {
	p.Helper()
	if p.iwarp() || wc.ID != id || wc.Status != verbs.WCWRFlushErr {
		return false
	}
	p.tells(wc, verbs.WCSuccess, verbs.WCWRFlushErr)
	return true
}

// arrivedOr requires that a receive was used, or flushed if that is allowed, and reports which.
func (s *side) arrivedOr(flushed bool, id uint64) bool {
	s.Helper()
	wc := s.received()
	require.Equal(s, id, wc.ID)
	if flushed && wc.Status == verbs.WCWRFlushErr {
		return false
	}
	s.ok(wc, verbs.WCRecv)
	return true
}

// localFault posts a valid request, the invalid request wr, and another valid one: the invalid one
// must fail locally with status, the one before it must arrive, and the one after it must not.
func (p *pair) localFault(wr verbs.SendWR, status verbs.WCStatus) {
	p.Helper()
	same := p.b.mem.keepsBut(0, 8)
	p.a.recv(9)
	p.b.recv(1, p.b.mem.sge(0, 8))
	p.b.recv(2, p.b.mem.sge(100, 8))
	wr.Flags |= verbs.SendSignaled
	p.a.post(verbs.SendWR{ID: wr.ID - 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: p.a.mem.sgl(0, 8)}, wr,
		verbs.SendWR{ID: wr.ID + 1, Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 8)})
	before := p.a.sent()
	early := p.flushedEarly(before, wr.ID-1)
	if !early {
		require.Equal(p, wr.ID-1, p.a.ok(before, verbs.WCSend).ID)
	}
	wc := p.a.sent()
	require.Equal(p, wr.ID, wc.ID)
	if status == verbs.WCLocProtErr {
		p.badSource(wc)
	} else {
		require.Equal(p, status.String(), wc.Status.String())
	}
	if p.kernelIWARP() && wr.Opcode == verbs.WRRDMARead {
		// The sink is checked when the response arrives; the request after the Read has been sent
		// by then.
		p.without("sink-first")
		p.disconnected()
		return
	}
	p.a.flushed(p.a.scq, wr.ID+1)
	p.a.flushed(p.a.rcq, 9)
	p.disconnected()
	if p.b.arrivedOr(early, 1) {
		p.b.mem.holds(0, p.a.mem.Bytes()[:8])
	}
	if p.f.userSpace() || wr.Opcode != verbs.WRRDMARead {
		p.b.flushed(p.b.rcq, 2)
	} else if p.b.arrivedOr(true, 2) {
		// Recent rxe checks the sink of a Read when the response arrives, and has sent the next
		// request by then.
		p.without("sink-first")
		p.b.mem.holds(100, p.a.mem.Bytes()[:8])
		same = func() {}
	}
	require.Equal(p, verbs.QPStateErr, p.a.qp.State())
	require.Equal(p, verbs.QPStateErr, p.b.qp.State())
	if p.kernelIWARP() {
		p.without("terminate-reason")
	} else if p.iwarp() {
		require.ErrorIs(p, p.b.qp.Err(), &verbs.TerminateError{Remote: true})
		require.ErrorIs(p, p.a.qp.Err(), &verbs.TerminateError{})
		require.ErrorIs(p, p.b.qpEvent().Err, &verbs.TerminateError{Remote: true})
	}
	same()
}

// sendBadReceive: a receive with invalid memory fails when a message uses it.
func sendBadReceive(w *world) outcome {
	by := w.pair(pairConfig{})
	for _, name := range append([]string{"ReadOnly"}, badLocals...) {
		w.sub(name, func(w *world) outcome {
			p := w.pair(pairConfig{})
			var sgl []verbs.SGE
			same := func() {}
			if name == "ReadOnly" {
				m := p.b.alloc(100, verbs.AccessRemoteRead)
				sgl, same = m.sgl(0, 100), m.keeps()
			} else {
				sgl = badLocal(p.b, name, 100)
			}
			p.a.recv(9)
			p.b.recv(1, sgl...)
			p.b.recv(2)
			wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 100)})
			w.peersBadBuffer(wc)
			got := p.b.received()
			require.EqualValues(w, 1, got.ID)
			w.badBuffer(got)
			p.b.flushed(p.b.rcq, 2)
			p.a.flushed(p.a.rcq, 9)
			p.broken(p.a, p.b, fault{1, 0, 0x00, verbs.WCRemOpErr})
			same()
			by.in(w).works()
			return tested
		})
	}
	return tested
}

func sendUnknownFlags(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, flags := range []verbs.SendFlags{1 << 4, 1 << 6, 0xff} {
		n, err := p.a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend, Flags: flags}})
		require.Zero(w, n)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	p.works()
	return tested
}
