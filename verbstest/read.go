// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var readTests = []test{
	{"Sizes", readSizes},
	{"ZeroLength", readZeroLength},
	{"ZeroBetween", readZeroBetween},
	{"Scatter", readScatter},
	{"Edges", readEdges},
	{"MoreThanDepth", readMoreThanDepth},
	{"BothWays", readBothWays},
	{"Unsignalled", readUnsignalled},
	{"Denied", readDenied},
	{"DeniedAfterGood", readDeniedAfterGood},
	{"BadSink", readBadSink},
	{"Inline", readInline},
}

// read returns a Read of offset off of src into dst.
func read(dst []verbs.SGE, src *mem, off int) verbs.SendWR {
	return verbs.SendWR{ID: 41, Opcode: verbs.WRRDMARead, SGL: dst, RemoteAddr: src.at(off), RKey: src.RKey()}
}

func readSizes(w *world) outcome {
	p := w.pair(pairConfig{})
	dst, src := p.bigMemory()
	for i, n := range sizes {
		src.fill(byte(i))
		dst.fill(byte(i + 100))
		off := i % 9
		same, rest := src.keeps(), dst.keepsBut(7, n)
		wc := p.a.ok(p.a.run(read(dst.sgl(7, n), src, off)), verbs.WCRDMARead)
		require.EqualValues(w, n, wc.ByteLen)
		require.Zero(w, wc.Flags)
		dst.holds(7, src.Bytes()[off:off+n])
		rest()
		same()
	}
	return tested
}

// readZeroLength: the key and address of an empty Read are not checked (RFC 5040 section 5.2.1).
func readZeroLength(w *world) outcome {
	p := w.pair(pairConfig{})
	same := p.a.mem.keeps()
	for _, sgl := range [][]verbs.SGE{nil, p.a.mem.sgl(5, 0)} {
		for _, key := range []uint32{p.b.mem.RKey(), p.b.mem.RKey() ^ 0x5a5a5a00, 0, math.MaxUint32} {
			for _, addr := range []uint64{p.b.mem.at(0), p.b.mem.at(scratch), 0, math.MaxUint64} {
				wc := p.a.run(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: sgl, RemoteAddr: addr, RKey: key})
				require.Zero(w, p.a.ok(wc, verbs.WCRDMARead).ByteLen)
			}
		}
	}
	same()
	p.works()
	return tested
}

// readZeroBetween posts empty Reads among others.
//
// Kernel siw answers an empty Read with bytes of the previous response if it has not finished with
// that one, although it has arrived. There, the empty Reads of a connection come first.
func readZeroBetween(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 50_000
	lengths, rounds := []int{n, 0, n, 0, n}, 10
	if w.kernelIWARP() {
		w.without("empty-read")
		lengths, rounds = []int{0, 0, n, n}, 1
	}
	src, dst := p.b.alloc(n, allRights), p.a.alloc(n, verbs.AccessLocalWrite)
	for round := range rounds {
		src.fill(byte(round))
		dst.fill(byte(round + 100))
		var wrs []verbs.SendWR
		for i, length := range lengths {
			wr := read(dst.sgl(0, length), src, 0)
			if i == 1 {
				wr.SGL = nil
			}
			wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
			wrs = append(wrs, wr)
		}
		p.a.post(wrs...)
		for i, length := range lengths {
			wc := p.a.ok(p.a.sent(), verbs.WCRDMARead)
			require.EqualValues(w, i, wc.ID)
			require.EqualValues(w, length, wc.ByteLen)
		}
		dst.holds(0, src.Bytes())
	}
	p.works()
	return tested
}

// readScatter scatters a Read to the maximum number of elements of the device.
func readScatter(w *world) outcome {
	p := w.pair(pairConfig{})
	count := min(p.a.qp.Cap().MaxSendSGE, w.a.attr.MaxSGERd)
	var sgl []verbs.SGE
	for i := range count {
		sgl = append(sgl, p.a.mem.sge(1000*i+i, 100+i))
	}
	p.a.ok(p.a.run(read(sgl, p.b.mem, 9)), verbs.WCRDMARead)
	for i, off := 0, 9; i < count; i++ {
		p.a.mem.holds(1000*i+i, p.b.mem.Bytes()[off:off+100+i])
		off += 100 + i
	}
	return tested
}

func readEdges(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, size := range []int{1, 7, 100, scratch} {
		m := w.b.register(make([]byte, size), verbs.AccessRemoteRead)
		for _, c := range []struct{ off, n int }{{0, 1}, {size - 1, 1}, {0, size}} {
			p.a.mem.fill(0x3c)
			p.a.ok(p.a.run(read(p.a.mem.sgl(0, c.n), m, c.off)), verbs.WCRDMARead)
			p.a.mem.holds(0, m.Bytes()[c.off:c.off+c.n])
		}
	}
	return tested
}

// readMoreThanDepth posts many more Reads than may be in progress: the others wait, and all
// complete in order.
func readMoreThanDepth(w *world) outcome {
	for _, depth := range []int{1, 2, 4} {
		p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: depth},
			bParam: cm.ConnParam{ResponderResources: depth}})
		const n, count = 3000, 40
		src, dst := p.b.alloc(n+count, allRights), p.a.alloc(n*count, verbs.AccessLocalWrite)
		for i := range count {
			wr := read(dst.sgl(i*n, n), src, i)
			wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
			p.a.post(wr)
		}
		for i := range count {
			require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
			dst.holds(i*n, src.Bytes()[i:i+n])
		}
		p.works()
	}
	return tested
}

func readBothWays(w *world) outcome {
	p := w.pair(pairConfig{})
	const n, count = 100_000, 16
	a, b := p.a.alloc(n*(count+1), allRights), p.b.alloc(n*(count+1), allRights)
	a.fill(1)
	b.fill(2)
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGL: a.sgl((i+1)*n, n), RemoteAddr: b.at(0), RKey: b.RKey()})
		p.b.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			SGL: b.sgl((i+1)*n, n), RemoteAddr: a.at(0), RKey: a.RKey()})
	}
	for i := range count {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
		require.EqualValues(w, i, p.b.ok(p.b.sent(), verbs.WCRDMARead).ID)
		a.holds((i+1)*n, b.Bytes()[:n])
		b.holds((i+1)*n, a.Bytes()[:n])
	}
	return tested
}

func readUnsignalled(w *world) outcome {
	p := w.pair(pairConfig{})
	for i := range 10 {
		p.a.post(read(p.a.mem.sgl(i*100, 100), p.b.mem, i))
	}
	p.a.ok(p.a.run(read(p.a.mem.sgl(1000, 100), p.b.mem, 10)), verbs.WCRDMARead)
	for i := range 11 {
		p.a.mem.holds(i*100, p.b.mem.Bytes()[i:i+100])
	}
	p.a.idle(p.a.scq)
	return tested
}

func readDenied(w *world) outcome {
	w.denied(func(d denial) (verbs.SendWR, fault, bool) {
		return verbs.SendWR{Opcode: verbs.WRRDMARead}, d.read.fault(), false
	}, verbs.AccessRemoteRead)
	return tested
}

// readDeniedAfterGood: the invalid request has the error status, and those after it are flushed.
// Those before it were executed, but iWARP does not guarantee their responses: the Terminate is
// sent at the earliest opportunity, and the state of outstanding requests is then indeterminate
// (RFC 5040 sections 6.2.1 and 7.1).
func readDeniedAfterGood(w *world) outcome {
	for _, n := range []int{8, 1 << 20} {
		p := w.pair(pairConfig{})
		const good = 3
		src, dst := w.b.alloc(n, allRights), w.a.alloc(n*(good+1), verbs.AccessLocalWrite)
		var wrs []verbs.SendWR
		for i := range good + 3 {
			wr := read(dst.sgl(min(i, good)*n, n), src, 0)
			wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
			if i == good {
				wr.RKey ^= 1
			}
			wrs = append(wrs, wr)
		}
		rest := dst.keepsBut(0, good*n)
		p.a.post(wrs...)
		flushed := false
		for i := range good {
			wc := p.a.sent()
			require.EqualValues(w, i, wc.ID)
			if flushed = flushed || w.iwarp() && wc.Status == verbs.WCWRFlushErr; flushed {
				require.Equal(w, verbs.WCWRFlushErr.String(), wc.Status.String())
			} else {
				p.a.ok(wc, verbs.WCRDMARead)
				dst.holds(i*n, src.Bytes())
			}
		}
		wc := p.a.sent()
		require.EqualValues(w, good, wc.ID)
		p.refusal(wc, fault{status: verbs.WCRemAccessErr}, false)
		p.a.flushed(p.a.scq, good+1, good+2)
		p.broken(p.a, p.b, fault{0, 1, 0x00, verbs.WCRemAccessErr})
		rest()
	}
	return tested
}

// readBadSink: the sink is the requester's memory, and is checked before the request is sent.
func readBadSink(w *world) outcome {
	by := w.pair(pairConfig{})
	for _, name := range append([]string{"ReadOnly"}, badLocals...) {
		if name == "SecondElement" && min(w.a.smallCap().MaxSendSGE, w.a.attr.MaxSGERd) < 2 {
			continue // refused for the number of its elements: Limits/SGE
		}
		w.sub(name, func(w *world) outcome {
			p := w.pair(pairConfig{})
			var sgl []verbs.SGE
			same := func() {}
			if name == "ReadOnly" {
				m := p.a.alloc(100, allRights&verbs.AccessRemoteRead)
				sgl, same = m.sgl(0, 100), m.keeps()
			} else {
				sgl = badLocal(p.a, name, 100)
			}
			p.localFault(verbs.SendWR{ID: 3, Opcode: verbs.WRRDMARead, SGL: sgl, RemoteAddr: p.b.mem.at(0),
				RKey: p.b.mem.RKey()}, verbs.WCLocProtErr)
			same()
			by.in(w).works()
			return tested
		})
	}
	return tested
}

func readInline(w *world) outcome {
	p := w.pair(pairConfig{})
	wr := read(p.a.mem.sgl(0, 8), p.b.mem, 0)
	wr.Flags = verbs.SendInline
	p.a.refused(verbs.ErrInvalid, wr)
	p.a.refused(verbs.ErrBounds, verbs.Read(p.b.mem.remote(0, 7), p.a.mem.sgl(0, 8)...))
	p.works()
	return tested
}
