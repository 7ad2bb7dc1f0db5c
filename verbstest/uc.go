// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Unreliable connections: Send and Write without acknowledgement.
var ucTests = []test{
	{"Traffic", ucTraffic},
	{"Immediate", ucImmediate},
	{"NotOfTheService", ucNotOfTheService},
	{"NoReceive", ucNoReceive},
	{"Denied", ucDenied},
	{"BadSource", ucBadSource},
	{"Errors", ucErrors},
}

func (w *world) uc() *pair {
	w.Helper()
	if w.noHand(verbs.QPTypeUC) {
		return nil
	}
	p := w.byHand(pairConfig{typ: verbs.QPTypeUC})
	require.Equal(w, verbs.QPTypeUC.String(), p.a.qp.Type().String())
	return p
}

// carries requires that Sends and Writes of several packets arrive.
func (p *pair) carries() {
	p.Helper()
	for _, n := range []int{0, 1, 3000} {
		p.seed++
		p.a.mem.fill(p.seed)
		require.EqualValues(p, n, transfer(p.a, p.b, p.a.mem.sgl(0, n), p.b.mem.sgl(0, 4000)).ByteLen)
		p.b.mem.holds(0, p.a.mem.Bytes()[:n])
		p.b.mem.fill(^p.seed)
		p.a.ok(p.a.run(write(p.a.mem.sgl(0, n), p.b.mem, 1000)), verbs.WCRDMAWrite)
		p.settle()
		p.b.mem.holds(1000, p.a.mem.Bytes()[:n])
	}
}

func ucTraffic(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	p.carries()
	(&pair{world: w, a: p.b, b: p.a}).carries()
	return tested
}

func ucImmediate(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	if w.has(verbs.OpSendImm) {
		p.b.recv(1, p.b.mem.sge(0, 100))
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSendWithImm, SGL: p.a.mem.sgl(0, 100), Imm: 0xfedcba98}),
			verbs.WCSend)
		wc := p.b.ok(p.b.received(), verbs.WCRecv)
		require.Equal(w, verbs.WCWithImm, wc.Flags&^verbs.WCGRH)
		require.EqualValues(w, 0xfedcba98, wc.Imm)
	}
	if w.has(verbs.OpWriteImm) {
		p.b.recv(2)
		p.a.ok(p.a.run(writeImm(p.a.mem.sgl(0, 8), p.b.mem, 16, 7)), verbs.WCRDMAWrite)
		wc := p.b.ok(p.b.received(), verbs.WCRecvRDMAWithImm)
		require.EqualValues(w, 7, wc.Imm)
		p.b.mem.holds(16, p.a.mem.Bytes()[:8])
	}
	p.carries()
	return tested
}

// ucNotOfTheService: operations that need a response are refused.
func ucNotOfTheService(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	for _, wr := range []verbs.SendWR{{Opcode: verbs.WRRDMARead}, {Opcode: verbs.WRAtomicFetchAndAdd},
		{Opcode: verbs.WRAtomicCmpAndSwp}, {Opcode: verbs.WRSendWithInv}} {
		p.a.refused(verbs.ErrNotSupported, at(wr, p.a.mem, 0, p.b.mem, 0))
	}
	p.carries()
	return tested
}

// ucNoReceive: a message without a receive is dropped.
func ucNoReceive(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 8)}), verbs.WCSend)
	p.b.idle(p.b.rcq)
	p.b.recv(3)
	p.b.idle(p.b.rcq)
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend}), verbs.WCSend)
	require.EqualValues(w, 3, p.b.ok(p.b.received(), verbs.WCRecv).ID)
	p.carries()
	return tested
}

// ucDenied: a forbidden Write changes nothing, and completes successfully.
func ucDenied(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	same := p.b.mem.keeps()
	wr := write(p.a.mem.sgl(0, 8), p.b.mem, 0)
	wr.RKey ^= 0x5a5a5a00
	p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
	p.a.idle(p.a.scq)
	require.Equal(w, verbs.QPStateRTS.String(), p.a.qp.State().String())
	same()
	return tested
}

func ucBadSource(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend, SGL: badLocal(p.a, "UnknownKey", 100)})
	w.badSource(wc)
	p.b.idle(p.b.rcq)
	return tested
}

func ucErrors(w *world) outcome {
	p := w.uc()
	if p == nil {
		return noted
	}
	p.b.recv(1)
	p.b.recv(2)
	require.NoError(w, p.b.modify(verbs.QPStateErr))
	p.b.flushed(p.b.rcq, 1, 2)
	p.b.post(verbs.SendWR{ID: 3, Opcode: verbs.WRSend})
	p.b.flushed(p.b.scq, 3)
	require.NoError(w, p.b.modify(verbs.QPStateReset))
	require.NoError(w, p.a.modify(verbs.QPStateReset))
	p.handUp(verbs.QPStateRTS)
	p.carries()
	return tested
}
