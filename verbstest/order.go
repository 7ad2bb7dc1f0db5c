// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

var orderTests = []test{
	{"Completions", orderCompletions},
	{"WriteThenSend", orderWriteThenSend},
	{"WriteThenRead", orderWriteThenRead},
	{"WriteThenAtomic", orderWriteThenAtomic},
	{"ReadsAndAtomics", orderReadsAndAtomics},
	{"FenceReadSend", orderFenceReadSend},
	{"FenceReadWrite", orderFenceReadWrite},
	{"FenceAtomicSend", orderFenceAtomicSend},
	{"FenceReadRead", orderFenceReadRead},
	{"FenceIdle", orderFenceIdle},
}

// orderCompletions posts long requests between short ones: they complete in posting order.
func orderCompletions(w *world) outcome {
	p := w.pair(pairConfig{})
	const big = 1 << 20
	src, dst := w.b.alloc(big, allRights), w.a.alloc(big, allRights)
	p.b.recv(1, p.b.mem.sge(0, 100))
	p.b.recv(2, p.b.mem.sge(0, 100))
	wrs := []verbs.SendWR{read(dst.sgl(0, big), src, 0), write(p.a.mem.sgl(0, 100), p.b.mem, 200),
		{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 100)}, read(p.a.mem.sgl(300, 1), p.b.mem, 0)}
	ops := []verbs.WCOpcode{verbs.WCRDMARead, verbs.WCRDMAWrite, verbs.WCSend, verbs.WCRDMARead}
	for _, c := range atomicOps {
		if w.has(c.op) {
			wrs = append(wrs, at(c.wr, p.a.mem, 400, p.b.mem, 400))
			ops = append(ops, c.wc)
		}
	}
	wrs = append(wrs, verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 100)},
		write(p.a.mem.sgl(0, 100), p.b.mem, 200))
	ops = append(ops, verbs.WCSend, verbs.WCRDMAWrite)
	for i := range wrs {
		wrs[i].ID, wrs[i].Flags = uint64(100+i), verbs.SendSignaled
	}
	for range 3 {
		p.a.post(wrs...)
		for i, op := range ops {
			require.EqualValues(w, 100+i, p.a.ok(p.a.sent(), op).ID)
		}
		require.EqualValues(w, 1, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		require.EqualValues(w, 2, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		p.b.recv(1, p.b.mem.sge(0, 100))
		p.b.recv(2, p.b.mem.sge(0, 100))
	}
	dst.holds(0, src.Bytes())
	return tested
}

// orderWriteThenSend: when a message arrives, the Writes before it have been placed.
func orderWriteThenSend(w *world) outcome {
	p := w.pair(pairConfig{})
	for i, n := range []int{1, 1000, 100_000, 1 << 20} {
		src, dst := w.a.alloc(n, 0), w.b.alloc(n, allRights)
		src.fill(byte(i))
		p.b.recv(1)
		p.a.post(write(src.sgl(0, n), dst, 0), verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		p.b.ok(p.b.received(), verbs.WCRecv)
		dst.holds(0, src.Bytes())
		require.EqualValues(w, 2, p.a.ok(p.a.sent(), verbs.WCSend).ID)
	}
	return tested
}

// orderWriteThenRead: a Read sees what earlier Writes wrote.
func orderWriteThenRead(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 50_000
	src, dst, back := w.a.alloc(n, 0), w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite)
	for i := range 10 {
		src.fill(byte(i))
		p.a.post(write(src.sgl(0, n), dst, 0))
		p.a.ok(p.a.run(read(back.sgl(0, n), dst, 0)), verbs.WCRDMARead)
		back.holds(0, src.Bytes())
	}
	return tested
}

func orderWriteThenAtomic(w *world) outcome {
	p := w.pair(pairConfig{})
	add := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}
	if p.lacks(verbs.OpFetchAdd, at(add, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	for i := range 20 {
		p.a.mem.put(64, uint64(i*1000))
		p.a.post(write(p.a.mem.sgl(64, 8), p.b.mem, 0), at(add, p.a.mem, 0, p.b.mem, 0))
		p.a.ok(p.a.run(read(p.a.mem.sgl(128, 8), p.b.mem, 0)), verbs.WCRDMARead)
		require.EqualValues(w, i*1000, p.a.mem.get(0), "the atomic sees the Write")
		require.EqualValues(w, i*1000+1, p.a.mem.get(128), "and the Read the atomic")
	}
	return tested
}

// orderReadsAndAtomics mixes both at the negotiated depth: responses arrive in the order of the
// requests.
func orderReadsAndAtomics(w *world) outcome {
	for _, depth := range []int{1, 3, 16} {
		p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: depth},
			bParam: cm.ConnParam{ResponderResources: depth}})
		add := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}
		if p.lacks(verbs.OpFetchAdd, at(add, p.a.mem, 0, p.b.mem, 0)) {
			return noted
		}
		p.b.mem.put(0, 0)
		const rounds = 24
		for i := range rounds {
			a, r := at(add, p.a.mem, 16*i, p.b.mem, 0), read(p.a.mem.sgl(16*i+8, 8), p.b.mem, 0)
			a.ID, a.Flags, r.ID, r.Flags = uint64(2*i), verbs.SendSignaled, uint64(2*i+1), verbs.SendSignaled
			p.a.post(a, r)
		}
		for i := range rounds {
			require.EqualValues(w, 2*i, p.a.ok(p.a.sent(), verbs.WCFetchAdd).ID)
			require.EqualValues(w, 2*i+1, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
			require.EqualValues(w, i, p.a.mem.get(16*i))
			// When a Read is answered, earlier atomics have been executed, and later ones may have
			// been.
			require.GreaterOrEqual(w, p.a.mem.get(16*i+8), uint64(i+1))
		}
	}
	return tested
}

// orderFenceReadSend: a fenced request starts once the Reads before it have completed, so it can
// send their data.
func orderFenceReadSend(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 300_000
	src, via := w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite)
	dst := w.b.alloc(n, verbs.AccessLocalWrite)
	for i := range 5 {
		src.fill(byte(i))
		p.b.recv(1, dst.sge(0, n))
		p.a.post(read(via.sgl(0, n), src, 0),
			verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendFence | verbs.SendSignaled, SGL: via.sgl(0, n)})
		require.EqualValues(w, 2, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		p.b.ok(p.b.received(), verbs.WCRecv)
		dst.holds(0, src.Bytes())
	}
	return tested
}

func orderFenceReadWrite(w *world) outcome {
	p := w.pair(pairConfig{})
	const n = 300_000
	src, via, dst := w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite), w.b.alloc(n, allRights)
	for i := range 5 {
		src.fill(byte(i))
		wr := write(via.sgl(0, n), dst, 0)
		wr.Flags = verbs.SendFence | verbs.SendSignaled
		p.b.recv(1)
		p.a.post(read(via.sgl(0, n), src, 0), wr, verbs.SendWR{ID: 3, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
		p.a.ok(p.a.sent(), verbs.WCRDMAWrite)
		require.EqualValues(w, 3, p.a.ok(p.a.sent(), verbs.WCSend).ID)
		p.b.ok(p.b.received(), verbs.WCRecv)
		dst.holds(0, src.Bytes())
	}
	return tested
}

func orderFenceAtomicSend(w *world) outcome {
	p := w.pair(pairConfig{})
	add := verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 5}
	if p.lacks(verbs.OpFetchAdd, at(add, p.a.mem, 0, p.b.mem, 0)) {
		return noted
	}
	p.b.mem.put(0, 0)
	for i := range 20 {
		p.b.recv(1, p.b.mem.sge(8, 8))
		p.a.post(at(add, p.a.mem, 0, p.b.mem, 0),
			verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendFence, SGL: p.a.mem.sgl(0, 8)})
		p.b.ok(p.b.received(), verbs.WCRecv)
		require.EqualValues(w, 5*i, p.b.mem.get(8), "the original value that the atomic brought")
		require.EqualValues(w, 5*i+5, p.b.mem.get(0))
	}
	return tested
}

// orderFenceReadRead: fenced Reads and atomics wait for each other and still complete in order.
func orderFenceReadRead(w *world) outcome {
	p := w.pair(pairConfig{})
	for i := range 20 {
		wr := read(p.a.mem.sgl(100*i, 100), p.b.mem, i)
		wr.ID, wr.Flags = uint64(i), verbs.SendFence|verbs.SendSignaled
		p.a.post(wr)
	}
	for i := range 20 {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
		p.a.mem.holds(100*i, p.b.mem.Bytes()[i:i+100])
	}
	return tested
}

// orderFenceIdle: a fence with nothing to wait for has no effect.
func orderFenceIdle(w *world) outcome {
	p := w.pair(pairConfig{})
	for range 3 {
		p.b.recv(1, p.b.mem.sge(0, 100))
		p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendFence, SGL: p.a.mem.sgl(0, 100)}),
			verbs.WCSend)
		p.b.ok(p.b.received(), verbs.WCRecv)
		wr := write(p.a.mem.sgl(0, 100), p.b.mem, 0)
		wr.Flags = verbs.SendFence
		p.a.ok(p.a.run(wr), verbs.WCRDMAWrite)
	}
	p.works()
	return tested
}
