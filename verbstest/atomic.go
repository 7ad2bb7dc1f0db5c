// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

var atomicTests = []test{
	{"FetchAdd", atomicFetchAdd},
	{"CmpSwap", atomicCmpSwap},
	{"MaskedFetchAdd", atomicMaskedFetchAdd},
	{"MaskedCmpSwap", atomicMaskedCmpSwap},
	{"MaskedRandom", atomicMaskedRandom},
	{"ByteOrder", atomicByteOrder},
	{"Pipelined", atomicPipelined},
	{"Contention", atomicContention},
	{"Lock", atomicLock},
	{"Denied", atomicDenied},
	{"Misaligned", atomicMisaligned},
	{"AlignedBufferUnalignedOffset", atomicAlignedBuffer},
	{"UnalignedBufferAlignedOffset", atomicUnalignedBuffer},
	{"BadSink", atomicBadSink},
	{"BadRequest", atomicBadRequest},
	{"Write", atomicWrite},
	{"WriteOnce", atomicWriteOnce},
	{"WriteDenied", atomicWriteDenied},
}

// atomicOps lists the atomic operations, each with an instance that changes a word containing 1.
var atomicOps = []struct {
	op     verbs.Op
	wc     verbs.WCOpcode
	wr     verbs.SendWR
	result uint64
}{
	{verbs.OpFetchAdd, verbs.WCFetchAdd, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 2}, 3},
	{verbs.OpCmpSwap, verbs.WCCompSwap, verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: 1, Swap: 4}, 4},
	{verbs.OpMaskedFetchAdd, verbs.WCMaskedFetchAdd, verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: 2}, 3},
	{verbs.OpMaskedCmpSwap, verbs.WCMaskedCompSwap, verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: 1,
		CompareMask: ones, Swap: 4, SwapMask: ones}, 4},
}

// atomics returns the requests of the list that the device supports, without operands.
func (w *world) atomics(ops ...verbs.Op) []verbs.SendWR {
	w.Helper()
	var wrs []verbs.SendWR
	for _, c := range atomicOps {
		if slices.Contains(ops, c.op) && w.has(c.op) {
			wrs = append(wrs, c.wr)
		}
	}
	return wrs
}

// everyAtomic returns every atomic that the device supports, without operands.
func (w *world) everyAtomic() []verbs.SendWR {
	return w.atomics(verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpMaskedCmpSwap)
}

// lacks reports whether the device lacks op, and requires that it then refuses wr.
func (p *pair) lacks(op verbs.Op, wr verbs.SendWR) bool {
	p.Helper()
	if p.has(op) {
		return false
	}
	same := p.b.mem.keeps()
	n, err := p.a.qp.PostSend([]verbs.SendWR{wr})
	require.Zero(p, n)
	p.lacking(op.String(), err)
	same()
	p.works()
	return true
}

// at returns wr with a word of the peer as its target and a word of this side as its sink.
func at(wr verbs.SendWR, sink *mem, sinkOff int, target *mem, off int) verbs.SendWR {
	wr.SGL, wr.RemoteAddr, wr.RKey = sink.sgl(sinkOff, 8), target.at(off), target.RKey()
	return wr
}

// atomic runs wr on a word with the value original. It requires that the word then has the value
// result, that original is returned, and that nothing around either word changes.
func (p *pair) atomic(wr verbs.SendWR, wc verbs.WCOpcode, original, result uint64) {
	p.Helper()
	const off, sink = 1024, 520
	p.b.mem.put(off, original)
	p.a.mem.put(sink, ^original)
	restA, restB := p.a.mem.keepsBut(sink, 8), p.b.mem.keepsBut(off, 8)
	done := p.a.ok(p.a.run(at(wr, p.a.mem, sink, p.b.mem, off)), wc)
	require.EqualValues(p, 8, done.ByteLen)
	require.Equal(p, fmt.Sprintf("%016x", original), fmt.Sprintf("%016x", p.a.mem.get(sink)), "returned value")
	require.Equal(p, fmt.Sprintf("%016x", result), fmt.Sprintf("%016x", p.b.mem.get(off)), "memory")
	restA()
	restB()
}

func atomicFetchAdd(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpFetchAdd, at(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	for _, v := range fetchAddVectors {
		if v.mask != 0 {
			continue
		}
		w.sub(v.name, func(w *world) outcome {
			// The mask is for the masked operation only and is ignored.
			wr := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: v.add, AddMask: ones}
			p.in(w).atomic(wr, verbs.WCFetchAdd, v.original, v.result)
			return tested
		})
	}
	return tested
}

func atomicCmpSwap(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpCmpSwap, at(verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp}, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	for _, v := range cmpSwapVectors {
		if v.cmpMask != ones || v.swapMask != ones {
			continue
		}
		w.sub(v.name, func(w *world) outcome {
			wr := verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: v.cmp, Swap: v.swap}
			p.in(w).atomic(wr, verbs.WCCompSwap, v.original, v.result)
			return tested
		})
	}
	return tested
}

func atomicMaskedFetchAdd(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpMaskedFetchAdd,
		at(verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: 1}, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	for _, v := range fetchAddVectors {
		w.sub(v.name, func(w *world) outcome {
			wr := verbs.SendWR{Opcode: verbs.WRMaskedAtomicFetchAndAdd, Add: v.add, AddMask: v.mask}
			p.in(w).atomic(wr, verbs.WCMaskedFetchAdd, v.original, v.result)
			return tested
		})
	}
	return tested
}

func atomicMaskedCmpSwap(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpMaskedCmpSwap, at(verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp}, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	for _, v := range cmpSwapVectors {
		w.sub(v.name, func(w *world) outcome {
			wr := verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: v.cmp, CompareMask: v.cmpMask,
				Swap: v.swap, SwapMask: v.swapMask}
			p.in(w).atomic(wr, verbs.WCMaskedCompSwap, v.original, v.result)
			return tested
		})
	}
	return tested
}

// addFields is the FetchAdd of RFC 7306 section 5.1.1, bit by bit as in the RFC.
func addFields(v, add, mask uint64) (sum uint64) {
	var carry uint64
	for b := range 64 {
		s := carry + v>>b&1 + add>>b&1
		sum |= s & 1 << b
		carry = s >> 1 &^ (mask >> b)
	}
	return sum
}

// atomicMaskedRandom compares operations on random operands with the definition.
func atomicMaskedRandom(w *world) outcome {
	p := w.pair(pairConfig{})
	if p.lacks(verbs.OpMaskedFetchAdd,
		at(ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, 1, 0), p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	random := rand.New(rand.NewPCG(73, 6))
	for range 200 {
		v, add, mask := random.Uint64(), random.Uint64(), random.Uint64()&random.Uint64()
		p.atomic(ext.MaskedFetchAddWR(verbs.Remote{Length: 8}, add, mask), verbs.WCMaskedFetchAdd, v,
			addFields(v, add, mask))

		swap, compareMask, swapMask := random.Uint64(), random.Uint64()&random.Uint64()&random.Uint64(), random.Uint64()
		compare := v
		if random.IntN(3) == 0 {
			compare = random.Uint64()
		}
		result := v
		if v&compareMask == compare&compareMask {
			result = v&^swapMask | swap&swapMask
		}
		p.atomic(ext.MaskedCmpSwapWR(verbs.Remote{Length: 8}, compare, compareMask, swap, swapMask),
			verbs.WCMaskedCompSwap, v, result)
	}
	return tested
}

// atomicByteOrder: operations work on the native integer, and operands and results are numbers.
func atomicByteOrder(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, c := range atomicOps {
		if p.lacks(c.op, at(c.wr, p.a.mem, 0, p.b.mem, 0)) {
			continue
		}
		binary.NativeEndian.PutUint64(p.b.mem.Bytes(), 1)
		p.a.ok(p.a.run(at(c.wr, p.a.mem, 8, p.b.mem, 0)), c.wc)
		require.Equal(w, c.result, binary.NativeEndian.Uint64(p.b.mem.Bytes()))
		require.EqualValues(w, 1, binary.NativeEndian.Uint64(p.a.mem.Bytes()[8:]))
		// A Read of the word returns the same bytes: on the wire they are not a number.
		p.a.ok(p.a.run(read(p.a.mem.sgl(16, 8), p.b.mem, 0)), verbs.WCRDMARead)
		p.a.mem.holds(16, p.b.mem.Bytes()[:8])
	}
	return tested
}

// atomicPipelined posts many more atomics than may be in progress. Each returns the result of the
// previous one.
func atomicPipelined(w *world) outcome {
	for _, depth := range []int{1, 4, 0} {
		p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: depth},
			bParam: cm.ConnParam{ResponderResources: depth}})
		if p.lacks(verbs.OpFetchAdd, at(verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd}, p.a.mem, 0, p.b.mem, 0)) {
			return noted
		}
		const count = 60
		p.b.mem.put(0, 1000)
		for i := range count {
			p.a.post(at(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled,
				Add: 3}, p.a.mem, 8*i, p.b.mem, 0))
		}
		for i := range count {
			require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCFetchAdd).ID)
			require.EqualValues(w, 1000+3*i, p.a.mem.get(8*i))
		}
		require.EqualValues(w, 1000+3*count, p.b.mem.get(0))
	}
	return tested
}

// atomicContention has three connections add to one word. The CPU adds too if the device declares
// its atomics atomic with respect to the CPU.
func atomicContention(w *world) outcome {
	pairs := []*pair{w.pair(pairConfig{}), w.pair(pairConfig{}), w.pair(pairConfig{})}
	add := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, Add: 1}
	if p := pairs[0]; p.lacks(verbs.OpFetchAdd, at(add, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	const rounds, window = 640, 32
	target := w.b.alloc(64, allRights)
	target.put(8, 0)
	var want uint64
	var wg sync.WaitGroup
	if w.b.attr.AtomicCap != verbs.AtomicGlob {
		w.without("cpu-atomics")
	} else {
		word := target.word(8)
		for range 2 {
			wg.Go(func() {
				for range rounds {
					atomic.AddUint64(word, 1<<32)
				}
			})
			want += rounds << 32
		}
	}
	for i := range rounds / window {
		for _, p := range pairs {
			for k := range window {
				add.ID = uint64(i*window + k)
				p.a.post(at(add, p.a.mem, 0, target, 8))
			}
		}
		for _, p := range pairs {
			for range window {
				p.a.ok(p.a.sent(), verbs.WCFetchAdd)
			}
		}
		want += uint64(len(pairs) * window)
	}
	wg.Wait()
	require.Equal(w, want, target.get(8))
	return tested
}

// atomicLock: two connections exclude each other with a lock bit that masked CmpSwap sets and
// clears, in the same word as a counter. Without masked CmpSwap, the lock is a separate word.
func atomicLock(w *world) outcome {
	one, two := w.pair(pairConfig{}), w.pair(pairConfig{})
	take := verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, CompareMask: 1 << 63, Swap: 1 << 63, SwapMask: 1 << 63}
	free := verbs.SendWR{Opcode: verbs.WRMaskedAtomicCmpAndSwp, Compare: 1 << 63, CompareMask: 1 << 63,
		SwapMask: 1 << 63}
	wc := verbs.WCMaskedCompSwap
	if one.lacks(verbs.OpMaskedCmpSwap, at(take, one.a.mem, 0, one.b.mem, 0)) {
		take = verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Swap: 1<<63 | 77}
		free = verbs.SendWR{Opcode: verbs.WRAtomicCmpAndSwp, Compare: 1<<63 | 77}
		wc = verbs.WCCompSwap
		if one.lacks(verbs.OpCmpSwap, at(take, one.a.mem, 0, one.b.mem, 0)) {
			return noted
		}
	}
	target := w.b.alloc(64, allRights)
	want := uint64(0)
	if wc == verbs.WCMaskedCompSwap {
		want = 77
	}
	target.put(0, want)
	try := func(p *pair, wr verbs.SendWR) uint64 {
		p.a.ok(p.a.run(at(wr, p.a.mem, 0, target, 0)), wc)
		return p.a.mem.get(0) >> 63
	}
	for range 50 {
		require.Zero(w, try(one, take), "free")
		require.EqualValues(w, 1, try(two, take), "taken by the other")
		require.EqualValues(w, 1, try(one, take), "taken by itself")
		require.Equal(w, uint64(1<<63|77), target.get(0))
		require.EqualValues(w, 1, try(one, free))
		require.Zero(w, try(two, take))
		require.EqualValues(w, 1, try(two, free))
	}
	require.Equal(w, want, target.get(0), "free, and the rest of the word as it was")
	return tested
}

func atomicDenied(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, c := range atomicOps {
		if p.lacks(c.op, at(c.wr, p.a.mem, 0, p.b.mem, 0)) {
			continue
		}
		w.sub(c.op.String(), func(w *world) outcome {
			w.denied(func(d denial) (verbs.SendWR, fault, bool) {
				return c.wr, d.atomic.fault(), false
			}, verbs.AccessRemoteAtomic)
			return tested
		})
	}
	return tested
}

// misaligned requires that no atomic operation is executed at offset off of target.
func (w *world) misaligned(target func(s *side) (m *mem, off int)) {
	by := w.pair(pairConfig{})
	for _, c := range atomicOps {
		w.sub(c.op.String(), func(w *world) outcome {
			p := w.pair(pairConfig{})
			m, off := target(p.b)
			wr := at(c.wr, p.a.mem, 8, m, off)
			if p.lacks(c.op, wr) {
				return noted
			}
			sameA, sameB := p.a.mem.keeps(), m.keeps()
			if w.iwarp() {
				p.refuse(wr, fault{0, 2, 0x07, verbs.WCRemInvReqErr}, false)
			} else {
				// InfiniBand devices may check the address when the request is posted.
				wr.Flags = verbs.SendSignaled
				if n, err := p.a.qp.PostSend([]verbs.SendWR{wr}); n == 0 {
					requireErr(w.T, err, verbs.ErrInvalid)
				} else {
					require.Equal(w, verbs.WCRemInvReqErr, p.a.sent().Status)
				}
			}
			sameA()
			sameB()
			by.in(w).works()
			return tested
		})
	}
}

func atomicMisaligned(w *world) outcome {
	for off := 1; off < 8; off++ {
		w.sub(fmt.Sprint(off), func(w *world) outcome {
			w.misaligned(func(s *side) (*mem, int) { return s.alloc(64, allRights), 16 + off })
			return tested
		})
	}
	return tested
}

// atomicUnalignedBuffer: on iWARP the memory address must be aligned, not the tagged offset (RFC
// 7306 section 5.2.1).
func atomicUnalignedBuffer(w *world) outcome {
	if w.noIova() {
		return noted
	}
	if !w.iwarp() {
		// InfiniBand checks only the virtual address; the memory may be at any offset in its page.
		w.atomicsAt(func(s *side) (*mem, int) { return s.registerIova(s.alloc(4096, 0).Bytes(), 1<<32, allRights), 8 })
		return tested
	}
	for _, shift := range []int{1, 4, 7} {
		w.sub(fmt.Sprint(shift), func(w *world) outcome {
			w.misaligned(func(s *side) (*mem, int) {
				buf := s.alloc(128, 0).Bytes()[shift:]
				require.Equal(s, shift, misalignment(buf))
				return s.registerIova(buf, 1<<32, allRights), 8
			})
			return tested
		})
	}
	return tested
}

// atomicAlignedBuffer: an odd tagged offset that maps to an aligned address.
func atomicAlignedBuffer(w *world) outcome {
	if w.noIova() {
		return noted
	}
	if !w.iwarp() {
		w.misaligned(func(s *side) (*mem, int) {
			return s.registerIova(s.memoryFor(1<<32+3, 128), 1<<32+3, allRights),
				8
		})
		return tested
	}
	aligned := func(s *side) (*mem, int) { return s.registerIova(s.alloc(128, 0).Bytes(), 1<<32+3, allRights), 8 }
	w.atomicsAt(aligned)
	return tested
}

// atomicsAt requires that atomics work on a target.
func (w *world) atomicsAt(target func(s *side) (*mem, int)) {
	p := w.pair(pairConfig{})
	m, off := target(p.b)
	for _, c := range atomicOps {
		if p.lacks(c.op, at(c.wr, p.a.mem, 8, m, off)) {
			continue
		}
		m.put(off, 1)
		p.a.ok(p.a.run(at(c.wr, p.a.mem, 8, m, off)), c.wc)
		require.Equal(w, c.result, m.get(off))
		require.EqualValues(w, 1, p.a.mem.get(8))
	}
}

// atomicBadSink: the sink is checked before the request is sent, so the target does not change.
func atomicBadSink(w *world) outcome {
	by := w.pair(pairConfig{})
	for _, c := range atomicOps {
		if by.lacks(c.op, at(c.wr, by.a.mem, 8, by.b.mem, 8)) {
			continue
		}
		for _, name := range append([]string{"ReadOnly"}, badLocals...) {
			if name == "SecondElement" {
				continue // an atomic has exactly one element: see BadRequest
			}
			w.sub(c.op.String()+"/"+name, func(w *world) outcome {
				p := w.pair(pairConfig{})
				wr := c.wr
				same := func() {}
				if name == "ReadOnly" {
					m := p.a.alloc(8, verbs.AccessRemoteRead)
					wr.SGL, same = m.sgl(0, 8), m.keeps()
				} else {
					wr.SGL = badLocal(p.a, name, 8)
				}
				wr.ID, wr.RemoteAddr, wr.RKey = 3, p.b.mem.at(16), p.b.mem.RKey()
				p.b.mem.put(16, 1)
				if !w.iwarp() || p.kernelIWARP() {
					// The sink is checked when the response arrives; by then the peer has executed
					// the request.
					require.NotEqual(w, verbs.WCSuccess.String(), p.a.run(wr).Status.String())
					p.disconnected()
				} else {
					p.localFault(wr, verbs.WCLocProtErr)
					require.EqualValues(w, 1, p.b.mem.get(16))
				}
				same()
				by.in(w).works()
				return tested
			})
		}
	}
	return tested
}

// atomicBadRequest: a request that is invalid regardless of memory is refused when it is posted.
func atomicBadRequest(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, c := range atomicOps {
		if p.lacks(c.op, at(c.wr, p.a.mem, 8, p.b.mem, 8)) {
			continue
		}
		good := at(c.wr, p.a.mem, 8, p.b.mem, 8)
		for _, sgl := range [][]verbs.SGE{nil, p.a.mem.sgl(0, 0), p.a.mem.sgl(0, 4), p.a.mem.sgl(0, 7),
			p.a.mem.sgl(0, 9), p.a.mem.sgl(0, 16), {p.a.mem.sge(0, 4), p.a.mem.sge(4, 4)},
			{p.a.mem.sge(0, 8), p.a.mem.sge(8, 0)}} {
			require.LessOrEqual(w, len(sgl), p.a.qp.Cap().MaxSendSGE)
			bad := good
			bad.SGL = sgl
			p.a.refused(verbs.ErrInvalid, bad)
		}
		inline := good
		inline.Flags = verbs.SendInline
		p.a.refused(verbs.ErrInvalid, inline)
		if c.op == verbs.OpFetchAdd {
			p.a.refused(verbs.ErrBounds, verbs.FetchAdd(p.b.mem.remote(8, 7), 1, p.a.mem.sgl(8, 8)...))
			p.a.refused(verbs.ErrBounds, verbs.CmpSwap(p.b.mem.remote(8, 7), 1, 2, p.a.mem.sgl(8, 8)...))
		}
		p.atomic(c.wr, c.wc, 1, c.result)
	}
	return tested
}
