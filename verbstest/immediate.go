// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var immediateTests = []test{
	{"WriteSizes", immWriteSizes},
	{"WriteValues", immWriteValues},
	{"WriteZeroLength", immWriteZeroLength},
	{"WriteNoReceive", immWriteNoReceive},
	{"WriteDenied", immWriteDenied},
	{"Data", immData},
	{"DataSolicited", immDataSolicited},
	{"DataReceiveUntouched", immDataReceiveUntouched},
	{"DataAfterWrite", immDataAfterWrite},
	{"DataAmongSends", immDataAmongSends},
	{"DataNoReceive", immDataNoReceive},
	{"DataInvalid", immDataInvalid},
}

// writeImm returns a Write with immediate of src to offset off of dst.
func writeImm(src []verbs.SGE, dst *mem, off int, imm uint32) verbs.SendWR {
	wr := write(src, dst, off)
	wr.Opcode, wr.Imm = verbs.WRRDMAWriteWithImm, imm
	return wr
}

// immediate requires that wc is a receive of the immediate imm64, also in the form of a fabric with
// 32-bit immediates.
func (s *side) immediate(wc verbs.WC, op verbs.WCOpcode, length int, imm64 uint64) {
	s.Helper()
	s.ok(wc, op)
	require.Equal(s, verbs.WCWithImm.String(), wc.Flags.String())
	require.EqualValues(s, length, wc.ByteLen)
	require.Equal(s, imm64, wc.Imm64)
	require.Equal(s, uint32(imm64>>32), wc.Imm, "the first four bytes")
}

func immWriteSizes(w *world) outcome {
	p := w.pair(pairConfig{})
	src, dst := p.bigMemory()
	if p.lacks(verbs.OpWriteImm, writeImm(src.sgl(0, 1), dst, 0, 1)) {
		return noted
	}
	for i, n := range sizes {
		src.fill(byte(i))
		dst.fill(byte(i + 100))
		off := i % 9
		rest, same := dst.keepsBut(7, n), p.b.mem.keeps()
		p.b.recv(5, p.b.mem.sge(0, 100))
		p.a.ok(p.a.run(writeImm(src.sgl(off, n), dst, 7, uint32(n))), verbs.WCRDMAWrite)
		wc := p.b.received()
		// The completion implies that the Write was placed.
		dst.holds(7, src.Bytes()[off:off+n])
		p.b.immediate(wc, verbs.WCRecvRDMAWithImm, n, uint64(n)<<32)
		require.EqualValues(w, 5, wc.ID)
		rest()
		same()
	}
	return tested
}

func immWriteValues(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpWriteImm, writeImm(p.a.mem.sgl(0, 1), p.b.mem, 0, 1)) {
		return noted
	}
	for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
		for _, imm := range []uint32{0, 1, 0x01020304, 0x80000000, math.MaxUint32} {
			p.b.recv(5) // no buffer is needed
			wr := writeImm(p.a.mem.sgl(0, 20), p.b.mem, 0, imm)
			wr.Flags = flags
			p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
			p.b.immediate(p.b.received(), verbs.WCRecvRDMAWithImm, 20, uint64(imm)<<32)
		}
	}
	p.works()
	return tested
}

func immWriteZeroLength(w *world) outcome {
	p := w.pair(pairConfig{})
	wr := verbs.SendWR{ID: 1, Opcode: verbs.WRRDMAWriteWithImm, Imm: 7, RKey: 0x5a5a5a00, RemoteAddr: math.MaxUint64}
	if p.lacks(verbs.OpWriteImm, wr) {
		return noted
	}
	same := p.b.mem.keeps()
	p.b.recv(5, p.b.mem.sge(0, 100))
	p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
	p.b.immediate(p.b.received(), verbs.WCRecvRDMAWithImm, 0, 7<<32)
	same()
	p.works()
	return tested
}

// immWriteNoReceive: the Write arrives, but its immediate finds no receive.
func immWriteNoReceive(w *world) outcome {
	by := w.pair(pairConfig{})
	p := w.pair(pairConfig{})
	wr := writeImm(p.a.mem.sgl(0, 20), p.b.mem, 10, 1)
	if p.lacks(verbs.OpWriteImm, wr) {
		return noted
	}
	p.a.mem.fill(1)
	rest := p.b.mem.keepsBut(10, 20)
	wr.Flags = verbs.SendSignaled
	p.a.post(wr)
	if w.iwarp() {
		p.refusal(p.a.sent(), fault{status: verbs.WCRemInvReqErr}, true)
		p.broken(p.a, p.b, fault{1, 2, 0x02, verbs.WCRemInvReqErr})
	} else {
		p.a.idle(p.a.scq)
		p.b.recv(5)
		p.b.immediate(p.b.received(), verbs.WCRecvRDMAWithImm, 20, 1<<32)
		p.a.ok(p.a.sent(), verbs.WCRDMAWrite)
	}
	rest()
	by.works()
	return tested
}

// immWriteDenied: no immediate arrives when the Write is refused.
func immWriteDenied(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpWriteImm, writeImm(p.a.mem.sgl(0, 8), p.b.mem, 0, 1)) {
		return noted
	}
	w.denied(func(d denial) (verbs.SendWR, fault, bool) {
		return verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 1}, d.write.fault(), true
	}, verbs.AccessRemoteWrite)
	return tested
}

func immData(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData}) {
		return noted
	}
	p.settle() // so that no Write immediately precedes it
	for _, imm := range []uint64{0, 1, 0x0102030405060708, 1 << 63, 0xffffffff, 0xffffffff00000000, ones} {
		p.b.recv(5)
		wc := p.a.ok(p.a.run(verbs.SendWR{ID: 6, Opcode: verbs.WRImmData, Imm64: imm, Imm: 99}), verbs.WCImmData)
		require.Zero(w, wc.Flags)
		wc = p.b.received()
		p.b.immediate(wc, verbs.WCRecvImmData, 8, imm)
		require.EqualValues(w, 5, wc.ID)
	}
	p.works()
	return tested
}

// immDataSolicited: opcode 9 of RFC 7306. The tests of CQs check the effect of the flag on events.
func immDataSolicited(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSolicited}) {
		return noted
	}
	p.settle() // so that no Write immediately precedes it
	for _, imm := range []uint64{0, 0x0102030405060708, ones} {
		p.b.recv(5)
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendSolicited, Imm64: imm}), verbs.WCImmData)
		p.b.immediate(p.b.received(), verbs.WCRecvImmData, 8, imm)
	}
	p.works()
	return tested
}

// immDataReceiveUntouched: the immediate consumes a receive but is delivered in the completion, not
// in the buffer.
func immDataReceiveUntouched(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData}) {
		return noted
	}
	p.settle() // so that no Write immediately precedes it
	same := p.b.mem.keeps()
	for _, n := range []int{0, 1, 4, 8, 100} {
		p.b.recv(uint64(n), p.b.mem.sge(50, n))
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRImmData, Imm64: ones}), verbs.WCImmData)
		p.b.immediate(p.b.received(), verbs.WCRecvImmData, 8, ones)
	}
	same()
	return tested
}

// immDataAfterWrite: on the wire, a Write with immediate is a Write followed by Immediate Data, so
// the receiver cannot distinguish how they were posted.
func immDataAfterWrite(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData}) {
		return noted
	}
	for _, together := range []bool{true, false} {
		for _, n := range []int{0, 1, 2000} {
			p.b.recv(5)
			wr := write(p.a.mem.sgl(0, n), p.b.mem, 0)
			wr.Flags = verbs.SendSignaled
			imm := verbs.SendWR{ID: 32, Opcode: verbs.WRImmData, Flags: verbs.SendSignaled, Imm64: 0x0102030405060708}
			if together {
				p.a.post(wr, imm)
				require.EqualValues(w, 31, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
				require.EqualValues(w, 32, p.a.ok(p.a.sent(), verbs.WCImmData).ID)
			} else {
				p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
				p.a.ok(p.a.run(imm), verbs.WCImmData)
			}
			p.b.immediate(p.b.received(), verbs.WCRecvRDMAWithImm, n, 0x0102030405060708)
			p.b.mem.holds(0, p.a.mem.Bytes()[:n])

			// A second immediate does not belong to the Write, nor does one after another message.
			p.b.recv(6)
			p.a.ok(p.a.run(imm), verbs.WCImmData)
			p.b.immediate(p.b.received(), verbs.WCRecvImmData, 8, 0x0102030405060708)
			p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
			p.settle()
			p.b.recv(7)
			p.a.ok(p.a.run(imm), verbs.WCImmData)
			p.b.immediate(p.b.received(), verbs.WCRecvImmData, 8, 0x0102030405060708)
		}
	}
	return tested
}

// immDataAmongSends: Sends and immediates consume receives in the order in which they were posted.
func immDataAmongSends(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData}) {
		return noted
	}
	const count = 30
	for i := range count {
		p.b.recv(uint64(i), p.b.mem.sge(i*100, 100))
	}
	var wrs []verbs.SendWR
	for i := range count {
		wr := verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, SGL: p.a.mem.sgl(i, 100)}
		if i%3 == 1 {
			wr = verbs.SendWR{ID: uint64(i), Opcode: verbs.WRImmData, Imm64: uint64(i)}
		}
		wrs = append(wrs, wr)
	}
	p.a.post(wrs...)
	for i := range count {
		wc := p.b.received()
		require.EqualValues(w, i, wc.ID)
		if i%3 == 1 {
			p.b.immediate(wc, verbs.WCRecvImmData, 8, uint64(i))
		} else {
			require.EqualValues(w, 100, p.b.ok(wc, verbs.WCRecv).ByteLen)
			require.Zero(w, wc.Flags)
			p.b.mem.holds(i*100, p.a.mem.Bytes()[i:i+100])
		}
	}
	return tested
}

func immDataNoReceive(w *world) outcome {
	for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
		by := w.pair(pairConfig{})
		p := w.pair(pairConfig{})
		wr := verbs.SendWR{ID: 3, Opcode: verbs.WRImmData, Flags: flags, Imm64: 1}
		if p.lacks(verbs.OpImm64, wr) {
			return noted
		}
		same := p.b.mem.keeps()
		p.refusal(p.a.run(wr), fault{status: verbs.WCRemInvReqErr}, true)
		p.broken(p.a, p.b, fault{1, 2, 0x02, verbs.WCRemInvReqErr})
		same()
		by.works()
	}
	return tested
}

func immDataInvalid(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData, SGL: p.a.mem.sgl(0, 8)}) {
		return noted
	}
	p.a.refused(verbs.ErrInvalid, verbs.SendWR{Opcode: verbs.WRImmData, SGL: p.a.mem.sgl(0, 8)})
	p.a.refused(verbs.ErrInvalid, verbs.SendWR{Opcode: verbs.WRImmData, Flags: verbs.SendInline})
	p.works()
	return tested
}
