// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var writeTests = []test{
	{"Sizes", writeSizes},
	{"ZeroLength", writeZeroLength},
	{"Gather", writeGather},
	{"Edges", writeEdges},
	{"Pipelined", writePipelined},
	{"Watched", writeWatched},
	{"Denied", writeDenied},
	{"DeniedLarge", writeDeniedLarge},
}

// write returns a Write of src to offset off of dst.
func write(src []verbs.SGE, dst *mem, off int) verbs.SendWR {
	return verbs.SendWR{ID: 31, Opcode: verbs.WRRDMAWrite, SGL: src, RemoteAddr: dst.at(off), RKey: dst.RKey()}
}

// writes returns a Write, and one with immediate if the device supports it, without operands.
func (w *world) writes() []verbs.SendWR {
	wrs := []verbs.SendWR{{Opcode: verbs.WRRDMAWrite}}
	if w.has(verbs.OpWriteImm) {
		wrs = append(wrs, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm, Imm: 1})
	}
	return wrs
}

// reads returns a Read without operands.
func (w *world) reads() []verbs.SendWR { return []verbs.SendWR{{Opcode: verbs.WRRDMARead}} }

// oneWay reports whether a request gets no response that could report its refusal, like a Write on
// iWARP.
func oneWay(wr verbs.SendWR) bool {
	return wr.Opcode == verbs.WRRDMAWrite || wr.Opcode == verbs.WRRDMAWriteWithImm
}

func writeSizes(w *world) outcome {
	p := w.pair(pairConfig{})
	src, dst := p.bigMemory()
	for i, n := range sizes {
		src.fill(byte(i))
		dst.fill(byte(i + 100))
		off := i % 9
		same, rest := src.keeps(), dst.keepsBut(7, n)
		wc := p.a.ok(p.a.run(write(src.sgl(off, n), dst, 7)), verbs.WCRDMAWrite)
		require.Zero(w, wc.Flags)
		p.settle()
		dst.holds(7, src.Bytes()[off:off+n])
		rest()
		same()
	}
	p.b.idle(p.b.rcq) // a Write generates no completion at the peer
	return tested
}

// writeZeroLength: the key and address of an empty Write are not checked.
func writeZeroLength(w *world) outcome {
	p := w.pair(pairConfig{})
	same := p.b.mem.keeps()
	for _, sgl := range [][]verbs.SGE{nil, p.a.mem.sgl(5, 0)} {
		for _, key := range []uint32{p.b.mem.RKey(), p.b.mem.RKey() ^ 0x5a5a5a00, 0, math.MaxUint32} {
			for _, addr := range []uint64{p.b.mem.at(0), p.b.mem.at(scratch), 0, math.MaxUint64} {
				p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: sgl, RemoteAddr: addr, RKey: key}),
					verbs.WCRDMAWrite)
			}
		}
	}
	p.settle()
	same()
	p.works()
	return tested
}

func writeGather(w *world) outcome {
	p := w.pair(pairConfig{})
	one, two := p.a.alloc(5000, 0), p.a.register(make([]byte, 3001)[1:], 0)
	two.fill(99)
	dst := p.b.alloc(8000, allRights)
	for i, lens := range [][]int{{1, 2, 3, 4}, {1000, 0, 1, 1499}, {0, 0, 0, 7}, {4000, 1, 900, 3}, {0, 1, 0, 0},
		{2, 1438, 2}} {
		dst.fill(byte(i))
		var sgl []verbs.SGE
		var want []byte
		for k, n := range lens[:min(len(lens), p.a.qp.Cap().MaxSendSGE)] {
			m := []*mem{one, two}[k%2]
			sgl = append(sgl, m.sge(k, n))
			want = append(want, m.Bytes()[k:k+n]...)
		}
		rest := dst.keepsBut(13, len(want))
		p.a.ok(p.a.run(write(sgl, dst, 13)), verbs.WCRDMAWrite)
		p.settle()
		dst.holds(13, want)
		rest()
	}
	return tested
}

// writeEdges writes the first and the last bytes of a region, and all of it.
func writeEdges(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, size := range []int{1, 7, 100, 4096} {
		m := w.b.register(make([]byte, size), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		p.exchangeWrite(m, 0, 1)
		p.exchangeWrite(m, size-1, 1)
		p.exchangeWrite(m, 0, min(size, scratch))
	}
	// A slice of a part of the memory does not extend beyond that part.
	part, err := p.b.mem.remote(0, scratch).Slice(8, 8)
	require.NoError(w, err)
	same := p.b.mem.keeps()
	p.a.refused(verbs.ErrBounds, verbs.Write(part, p.a.mem.sgl(0, 9)...))
	p.a.refused(verbs.ErrBounds, verbs.Write(part, p.a.mem.sge(0, 8), p.a.mem.sge(8, 8)))
	none, err := part.Slice(8, 0)
	require.NoError(w, err)
	p.a.refused(verbs.ErrBounds, verbs.Write(none, p.a.mem.sgl(0, 1)...))
	p.settle()
	same()
	p.a.ok(p.a.run(verbs.Write(part, p.a.mem.sgl(0, 8)...)), verbs.WCRDMAWrite)
	p.settle()
	p.b.mem.holds(8, p.a.mem.Bytes()[:8])
	return tested
}

// writePipelined keeps the send queue full of Writes.
func writePipelined(w *world) outcome {
	p := w.pair(pairConfig{})
	const n, count, window = 5000, 200, 32
	src, dst := p.a.alloc(count+n, 0), p.b.alloc(count*n, allRights)
	posted := 0
	for done := range count {
		for ; posted < count && posted < done+window; posted++ {
			wr := write(src.sgl(posted, n), dst, posted*n)
			wr.ID, wr.Flags = uint64(posted), verbs.SendSignaled
			p.a.post(wr)
		}
		require.EqualValues(w, done, p.a.ok(p.a.sent(), verbs.WCRDMAWrite).ID)
	}
	p.settle()
	for i := range count {
		dst.holds(i*n, src.Bytes()[i:i+n])
	}
	return tested
}

// writeWatched: the program observes a Write in its memory without any completion, by polling with
// sync/atomic.
func writeWatched(w *world) outcome {
	p := w.pair(pairConfig{})
	words := make([]uint64, 8)
	for _, m := range []*mem{w.b.alloc(64, allRights), w.b.register(wordBytes(words), allRights)} {
		watched := m.word(56)
		for i := range uint64(20) {
			atomic.StoreUint64(watched, 0)
			p.a.mem.put(56, i+1)
			p.a.post(write(p.a.mem.sgl(0, 64), m, 0))
			deadline := time.Now().Add(waitLimit)
			for atomic.LoadUint64(watched) != i+1 {
				require.True(w, time.Now().Before(deadline), "the Write is not seen")
				time.Sleep(10 * time.Microsecond)
			}
		}
	}
	return tested
}

func writeDenied(w *world) outcome {
	w.denied(func(d denial) (verbs.SendWR, fault, bool) {
		return verbs.SendWR{Opcode: verbs.WRRDMAWrite}, d.write.fault(), true
	}, verbs.AccessRemoteWrite)
	return tested
}

// writeDeniedLarge: if only the last byte of a long Write is outside the region, no byte outside is
// touched.
func writeDeniedLarge(w *world) outcome {
	by := w.pair(pairConfig{})
	p := w.pair(pairConfig{})
	const n = 1 << 20
	src := p.a.alloc(n, 0)
	src.fill(0x11)
	buf := p.b.alloc(n+64, 0).Bytes()
	m := p.b.register(buf[32:32+n-1:32+n-1], allRights)
	before, after := pattern(0, 32), pattern(0, 33)
	copy(buf, before)
	copy(buf[32+n-1:], after)
	wr := write(src.sgl(0, n), m, 0)
	p.refuse(wr, fault{1, 1, 0x01, verbs.WCRemAccessErr}, true)
	requireSame(w.T, before, buf[:32])
	requireSame(w.T, after, buf[32+n-1:])
	by.works()
	return tested
}
