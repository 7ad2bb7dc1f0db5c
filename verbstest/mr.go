// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"math"
	"os"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var mrTests = []test{
	{"Alloc", mrAlloc},
	{"AllocInvalid", mrAllocInvalid},
	{"HugePages", mrHugePages},
	{"RegisterHeap", mrRegisterHeap},
	{"RegisterInvalid", mrRegisterInvalid},
	{"Overlap", mrOverlap},
	{"Iova", mrIova},
	{"ZeroBased", mrZeroBased},
	{"SGE", mrSGE},
	{"Access", mrAccess},
	{"ManyKeys", mrManyKeys},
}

func mrAlloc(w *world) outcome {
	for _, n := range []int{1, 4095, 4096, 4097, 1 << 20} {
		mr, err := w.a.pd.AllocMR(n, allRights)
		require.NoError(w, err)
		require.Equal(w, n, mr.Len())
		require.Len(w, mr.Bytes(), n)
		require.Equal(w, n, cap(mr.Bytes()), "nothing behind the region is handed out")
		requireSame(w.T, make([]byte, n), mr.Bytes())
		require.Zero(w, mr.Addr()%uint64(os.Getpagesize()), "page aligned")
		require.Equal(w, allRights, mr.Access())
		require.NoError(w, mr.Close())
	}
	return tested
}

func mrAllocInvalid(w *world) outcome {
	for _, n := range []int{0, -1, math.MinInt} {
		_, err := w.a.pd.AllocMR(n, allRights)
		requireErr(w.T, err, verbs.ErrInvalid)
		require.ErrorContains(w, err, "length")
	}
	return tested
}

// mrHugePages: a system without huge pages falls back to ordinary pages.
func mrHugePages(w *world) outcome {
	p := w.pair(pairConfig{})
	m := w.b.alloc(3<<20, allRights|verbs.AccessHugeTLB)
	p.exchangeWrite(m, 3<<20-500, 500)
	return tested
}

func mrRegisterHeap(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, off := range []int{0, 1, 4, 7} {
		buf := make([]byte, 3000)[off:]
		m := w.b.register(buf, allRights)
		require.Same(w, &buf[0], &m.Bytes()[0])
		p.exchangeWrite(m, 0, m.Len())
		p.exchangeWrite(m, 1, 1)
		p.exchangeWrite(m, m.Len()-9, 9)
		m.fill(3)
		wc := transfer(p.a, p.b, p.a.mem.sgl(0, 1000), m.sgl(500, 1000))
		require.EqualValues(w, 1000, wc.ByteLen)
		m.holds(500, p.a.mem.Bytes()[:1000])
		require.NoError(w, m.Close())
	}
	return tested
}

func mrRegisterInvalid(w *world) outcome {
	for _, buf := range [][]byte{nil, {}} {
		_, err := w.a.pd.RegMR(buf, 0)
		requireErr(w.T, err, verbs.ErrInvalid)
		_, err = w.a.pd.RegMRIova(buf, 4096, 0)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	return tested
}

// mrOverlap: the same memory may be registered twice, with different rights.
func mrOverlap(w *world) outcome {
	p := w.pair(pairConfig{})
	buf := make([]byte, 1024)
	open := w.b.register(buf, allRights)
	closed := w.b.register(buf, verbs.AccessLocalWrite)
	require.NotEqual(w, open.RKey(), closed.RKey())
	p.exchangeWrite(open, 100, 300)
	require.NoError(w, closed.Close())
	p.exchangeWrite(open, 200, 300)
	p.deny(closed, closed.at(0))
	return tested
}

func mrIova(w *world) outcome {
	if w.noIova() {
		return noted
	}
	p := w.pair(pairConfig{})
	for _, iova := range []uint64{1, 4096, 0x123456789, math.MaxUint64 - 8192} {
		m := w.b.registerIova(w.b.memoryFor(iova, 4096), iova, allRights)
		require.Equal(w, iova, m.Addr())
		p.exchangeWrite(m, 0, 4096)
		p.exchangeWrite(m, 4000, 96)
		wc := transfer(p.a, p.b, p.a.mem.sgl(0, 64), m.sgl(64, 64))
		require.EqualValues(w, 64, wc.ByteLen)
		m.holds(64, p.a.mem.Bytes()[:64])
	}
	// The memory's address is not an address of the region.
	buf := w.b.memoryFor(4096, 64)
	m := w.b.registerIova(buf, 4096, allRights)
	own := w.b.register(buf, allRights)
	p.deny(m, own.at(0))

	_, err := w.a.pd.RegMRIova(buf, math.MaxUint64-62, allRights)
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "wraps")
	return tested
}

func mrZeroBased(w *world) outcome {
	if w.noIova() {
		return noted
	}
	p := w.pair(pairConfig{})
	buf := w.b.memoryFor(0, 1024)
	m := w.b.register(buf, allRights|verbs.AccessZeroBased)
	require.Zero(w, m.Addr())
	require.Equal(w, uint64(17), m.sge(17, 4).Addr)
	p.exchangeWrite(m, 0, 1024)
	p.exchangeWrite(m, 1000, 24)
	a, err := w.b.pd.AllocMR(64, allRights|verbs.AccessZeroBased)
	m = w.b.adopt(a, err)
	require.Zero(w, m.Addr())
	p.exchangeWrite(m, 10, 20)

	m = w.b.registerIova(buf, 0, allRights|verbs.AccessZeroBased)
	require.Zero(w, m.Addr())
	_, err = w.b.pd.RegMRIova(buf, 8, allRights|verbs.AccessZeroBased)
	requireErr(w.T, err, verbs.ErrInvalid)

	own := w.b.register(buf, allRights)
	p.deny(m, own.at(0))
	return tested
}

func mrSGE(w *world) outcome {
	regions := []*mem{w.a.alloc(100, 0), w.a.register(make([]byte, 100), 0)}
	if !w.noIova() {
		regions = append(regions, w.a.registerIova(w.a.memoryFor(1<<40, 100), 1<<40, 0))
	}
	for _, m := range regions {
		for _, c := range []struct{ off, n int }{{0, 0}, {0, 100}, {100, 0}, {99, 1}, {50, 50}} {
			s, err := m.SGE(c.off, c.n)
			require.NoError(w, err)
			require.Equal(w, verbs.SGE{Addr: m.Addr() + uint64(c.off), Length: uint32(c.n), LKey: m.LKey()}, s)
		}
		for _, c := range []struct{ off, n int }{{0, 101}, {100, 1}, {101, 0}, {-1, 1}, {0, -1}, {math.MaxInt, 1},
			{1, math.MaxInt}, {math.MinInt, math.MinInt}} {
			_, err := m.SGE(c.off, c.n)
			requireErr(w.T, err, verbs.ErrBounds)
		}
	}
	return tested
}

func mrAccess(w *world) outcome {
	const lw, rw, rr, ra = verbs.AccessLocalWrite, verbs.AccessRemoteWrite, verbs.AccessRemoteRead,
		verbs.AccessRemoteAtomic
	for _, access := range []verbs.AccessFlags{0, lw, rr, lw | rr, lw | rw, lw | ra, lw | rw | rr | ra,
		verbs.AccessMWBind} {
		mr, err := w.a.pd.AllocMR(64, access)
		require.NoError(w, err, access.String())
		require.Equal(w, access, mr.Access())
		require.NoError(w, mr.Close())
	}
	for _, access := range []verbs.AccessFlags{rw, ra, rw | rr, 1 << 9, lw | 1<<21, 1 << 31} {
		_, err := w.a.pd.AllocMR(64, access)
		requireErr(w.T, err, verbs.ErrInvalid)
		_, err = w.a.pd.RegMR(make([]byte, 64), access)
		requireErr(w.T, err, verbs.ErrInvalid)
		_, err = w.a.pd.RegMRIova(make([]byte, 64), 0, access)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	return tested
}

// mrManyKeys: the keys of live regions differ.
func mrManyKeys(w *world) outcome {
	seen := make(map[uint32]bool)
	for range 500 {
		m := w.a.register(make([]byte, 8), verbs.AccessRemoteRead)
		require.False(w, seen[m.RKey()], "key %#x is given twice", m.RKey())
		seen[m.RKey()] = true
	}
	return tested
}

// exchangeWrite writes n bytes to offset off of m on the passive side and requires that only these
// bytes change.
func (p *pair) exchangeWrite(m *mem, off, n int) {
	p.Helper()
	src := p.a.alloc(n, 0)
	p.seed++
	src.fill(p.seed)
	rest := m.keepsBut(off, n)
	p.a.ok(p.a.run(verbs.SendWR{ID: 21, Opcode: verbs.WRRDMAWrite, SGL: src.sgl(0, n), RemoteAddr: m.at(off),
		RKey: m.RKey()}), verbs.WCRDMAWrite)
	p.settle()
	m.holds(off, src.Bytes())
	rest()
	require.NoError(p, src.Close())
}

// deny requires that one byte at addr is not written under m's key. This ends the connection.
func (p *pair) deny(m *mem, addr uint64) {
	p.Helper()
	same := m.keeps()
	wc := p.a.run(verbs.SendWR{ID: 22, Opcode: verbs.WRRDMAWrite, SGL: p.a.mem.sgl(0, 1), RemoteAddr: addr,
		RKey: m.RKey()})
	if !p.iwarp() {
		require.Equal(p, verbs.WCRemAccessErr, wc.Status)
	}
	p.disconnected()
	require.Equal(p, verbs.QPStateErr, p.b.qp.State())
	same()
}
