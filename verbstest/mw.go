// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var mwTests = []test{
	{"Alloc", mwAlloc},
	{"Access", mwAccess},
	{"ZeroBased", mwZeroBased},
	{"Rights", mwRights},
	{"Bounds", mwBounds},
	{"Unbound", mwUnbound},
	{"Rebind", mwRebind},
	{"WrongQP", mwWrongQP},
	{"RegionClosed", mwRegionClosed},
	{"WindowClosed", mwWindowClosed},
	{"QPClosed", mwQPClosed},
	{"BindInvalid", mwBindInvalid},
	{"BindUnsignalled", mwBindUnsignalled},
}

const windowRights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// noWindows reports whether the device lacks type 2 windows, and requires that it then refuses
// them.
func (w *world) noWindows() bool {
	w.Helper()
	if w.b.ctx.Supports(verbs.OpBindMW) {
		return false
	}
	_, err := w.b.pd.AllocMW(verbs.MWType2)
	w.lacking("mw2", err)
	return true
}

func (s *side) allocMW() *verbs.MW {
	s.Helper()
	mw, err := s.qp.PD().AllocMW(verbs.MWType2)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, mw.Close()) })
	return mw
}

// bind returns a request that binds mw to n bytes of m at off.
func bind(mw *verbs.MW, m *mem, off, n int, access verbs.AccessFlags) verbs.SendWR {
	m.closesAfter(mw)
	return verbs.SendWR{ID: 51, Opcode: verbs.WRBindMW, RKey: mw.NextRKey(),
		Bind: &verbs.MWBind{MW: mw, MR: m.MR, Addr: m.at(off), Length: uint64(n), Access: access}}
}

// under returns wr with the key of a window.
func under(mw *verbs.MW, wr verbs.SendWR) verbs.SendWR {
	wr.RKey = mw.RKey()
	return wr
}

// window binds a new window on the passive side to n bytes of m at off.
func (p *pair) window(m *mem, off, n int, access verbs.AccessFlags) *verbs.MW {
	p.Helper()
	mw := p.b.allocMW()
	p.b.ok(p.b.run(bind(mw, m, off, n, access)), verbs.WCBindMW)
	return mw
}

func mwAlloc(w *world) outcome {
	for _, t := range []verbs.MWType{0, 3, 255} {
		_, err := w.b.pd.AllocMW(t)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	if w.noWindows() {
		return noted
	}
	seen := make(map[uint32]bool)
	for range 20 {
		mw, err := w.b.pd.AllocMW(verbs.MWType2)
		require.NoError(w, err)
		require.False(w, seen[mw.RKey()>>8], "index of key %#x is given twice", mw.RKey())
		seen[mw.RKey()>>8] = true
		require.Equal(w, mw.RKey()>>8, mw.NextRKey()>>8)
		require.Equal(w, byte(mw.RKey())+1, byte(mw.NextRKey()))
		w.Cleanup(func() { require.NoError(w, mw.Close()) })
	}
	return tested
}

// mwAccess writes, reads and performs atomics through a window in the middle of a region without
// remote access.
func mwAccess(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	mw := p.b.allocMW()
	wr := bind(mw, m, 1000, 100, windowRights)
	p.b.ok(p.b.run(wr), verbs.WCBindMW)
	require.Equal(w, wr.RKey, mw.RKey(), "the handle follows the binds")

	p.usesWindow(mw, m)
	return tested
}

// usesWindow accesses bytes 1000 to 1099 of m with every operation, through a window that grants
// all rights to them.
func (p *pair) usesWindow(mw *verbs.MW, m *mem) {
	p.Helper()
	rest := m.keepsBut(1000, 100)
	p.a.ok(p.a.run(under(mw, write(p.a.mem.sgl(0, 100), m, 1000))), verbs.WCRDMAWrite)
	p.settle()
	m.holds(1000, p.a.mem.Bytes()[:100])
	rest()
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(200, 99), m, 1001))), verbs.WCRDMARead)
	p.a.mem.holds(200, m.Bytes()[1001:1100])
	for _, c := range atomicOps {
		if !p.has(c.op) {
			continue
		}
		m.put(1000, 1)
		p.a.ok(p.a.run(under(mw, at(c.wr, p.a.mem, 400, m, 1000))), c.wc)
		require.Equal(p, c.result, m.get(1000), "%v", c.op)
		require.EqualValues(p, 1, p.a.mem.get(400), "%v", c.op)
	}
	rest()
}

func mwZeroBased(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	mw := p.window(m, 1000, 100, windowRights|verbs.AccessZeroBased)
	rest := m.keepsBut(1010, 90)
	put := verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: p.a.mem.sgl(0, 90), RemoteAddr: 10, RKey: mw.RKey()}
	p.a.ok(p.a.run(put), verbs.WCRDMAWrite)
	p.settle()
	m.holds(1010, p.a.mem.Bytes()[:90])
	rest()
	over := verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: p.a.mem.sgl(0, 1), RemoteAddr: 100, RKey: mw.RKey()}
	p.outside(m, over, fault{1, 1, 0x01, verbs.WCRemAccessErr}, true)
	return tested
}

// outside requires that a request outside its window but inside the region is refused. It reports
// false, and records that, if the device allows it: rxe checks only the bounds of the region.
func (p *pair) outside(m *mem, wr verbs.SendWR, f fault, oneWay bool) bool {
	p.Helper()
	if p.iwarp() || p.f.userSpace() {
		p.deniedAt(m, wr, f, oneWay)
		return true
	}
	same := m.keeps()
	wc := p.a.run(wr)
	if wc.Status == verbs.WCSuccess {
		p.without("mw-bounds")
		return false
	}
	require.Equal(p, verbs.WCRemAccessErr.String(), wc.Status.String())
	same()
	return true
}

// busyWith reports whether a region cannot be closed while windows are bound to it, as with kernel
// drivers. It then requires that everything still works and that the region can be closed after the
// window.
func (p *pair) busyWith(m *mem, mw *verbs.MW, wr verbs.SendWR) bool {
	p.Helper()
	err := m.Close()
	if p.f.userSpace() || err == nil {
		require.NoError(p, err)
		return false
	}
	requireErr(p.T, err, verbs.ErrBusy)
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	require.NoError(p, mw.Close())
	require.NoError(p, m.Close())
	p.note(Lack{"dereg-bound", errnoName(err)})
	return true
}

// deniedAt requires that a request is refused, that m does not change, and that another connection
// still works.
func (p *pair) deniedAt(m *mem, wr verbs.SendWR, f fault, oneWay bool) {
	p.Helper()
	by := p.world.pair(pairConfig{})
	same, own := m.keeps(), p.a.mem.keeps()
	p.refuse(wr, f, oneWay)
	same()
	own()
	by.works()
}

// mwRights: a window has the rights of the bind, not those of its region.
func mwRights(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	for _, c := range []struct {
		name   string
		access verbs.AccessFlags
		op     verbs.Op
		wrs    func(w *world) []verbs.SendWR
	}{
		{"Write", windowRights &^ verbs.AccessRemoteWrite, verbs.OpWrite, (*world).writes},
		{"Read", windowRights &^ verbs.AccessRemoteRead, verbs.OpRead, (*world).reads},
		{"FetchAdd", windowRights &^ verbs.AccessRemoteAtomic, verbs.OpFetchAdd, func(w *world) []verbs.SendWR {
			return w.atomics(verbs.OpFetchAdd, verbs.OpMaskedFetchAdd)
		}},
		{"CmpSwap", windowRights &^ verbs.AccessRemoteAtomic, verbs.OpCmpSwap, func(w *world) []verbs.SendWR {
			return w.atomics(verbs.OpCmpSwap, verbs.OpMaskedCmpSwap)
		}},
		{"NoRights", 0, verbs.OpRead, func(w *world) []verbs.SendWR {
			return slices.Concat(w.writes(), w.reads(), w.everyAtomic())
		}},
	} {
		w.sub(c.name, func(w *world) outcome {
			if !w.has(c.op) {
				return noted // atomicFetchAdd and atomicCmpSwap check the refusal
			}
			m := w.b.alloc(64, allRights)
			for _, wr := range c.wrs(w) {
				w.Log(wr.Opcode)
				p := w.pair(pairConfig{})
				mw := p.window(m, 0, 64, c.access)
				p.deniedAt(m, under(mw, at(wr, p.a.mem, 0, m, 0)), fault{0, 1, 0x02, verbs.WCRemAccessErr}, oneWay(wr))
			}
			return tested
		})
	}
	return tested
}

func mwBounds(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	for _, c := range []struct {
		name     string
		off, n   int
		refusals bool
	}{
		{"All", 1000, 100, false}, {"First", 1000, 1, false}, {"Last", 1099, 1, false},
		{"OnePast", 1000, 101, true}, {"OneBefore", 999, 2, true}, {"Behind", 1100, 1, true},
		{"RegionStart", 0, 1, true},
	} {
		w.sub(c.name, func(w *world) outcome {
			p := w.pair(pairConfig{})
			m := w.b.alloc(4096, allRights)
			mw := p.window(m, 1000, 100, windowRights)
			get := under(mw, read(p.a.mem.sgl(0, c.n), m, c.off))
			if !c.refusals {
				p.a.ok(p.a.run(get), verbs.WCRDMARead)
				p.a.mem.holds(0, m.Bytes()[c.off:c.off+c.n])
				return tested
			}
			if !p.outside(m, get, fault{0, 1, 0x01, verbs.WCRemAccessErr}, false) {
				return noted
			}
			p = w.pair(pairConfig{})
			mw = p.window(m, 1000, 100, windowRights)
			p.outside(m, under(mw, write(p.a.mem.sgl(0, c.n), m, c.off)), fault{1, 1, 0x01, verbs.WCRemAccessErr}, true)
			return tested
		})
	}
	return tested
}

// mwUnbound: the key from the allocation grants no access.
func mwUnbound(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	mw := p.b.allocMW()
	p.deniedAt(p.b.mem, under(mw, read(p.a.mem.sgl(0, 8), p.b.mem, 0)), fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// mwRebind: after invalidation, a window can be bound again, with a new key and to another place.
// The old key grants no access. A bound window cannot be bound again without being invalidated.
func mwRebind(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(4096, allRights)
	mw := p.window(m, 0, 100, windowRights)
	old := mw.RKey()
	for i := 1; i < 5; i++ {
		p.b.ok(p.b.run(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()}), verbs.WCLocalInv)
		p.b.ok(p.b.run(bind(mw, m, 200*i, 100, windowRights)), verbs.WCBindMW)
		require.NotEqual(w, old, mw.RKey())
		p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 100), m, 200*i))), verbs.WCRDMARead)
		p.a.mem.holds(0, m.Bytes()[200*i:200*i+100])
	}
	p.deniedAt(m, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: p.a.mem.sgl(0, 8), RemoteAddr: m.at(0), RKey: old},
		fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)

	p = w.pair(pairConfig{})
	mw = p.window(m, 0, 100, windowRights)
	p.a.recv(1)
	wc := p.b.run(bind(mw, m, 200, 100, windowRights))
	w.badBind(wc)
	closes(w.T, p.a.id.Done(), "the end of the connection")
	p.a.flushed(p.a.rcq, 1)
	return tested
}

// mwWrongQP: a type 2 window belongs to the QP that bound it.
func mwWrongQP(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	owner := w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	mw := owner.window(m, 0, 64, windowRights)
	for _, c := range []struct {
		name string
		op   verbs.Op
		wrs  func(w *world) []verbs.SendWR
		f    fault
	}{
		{"Write", verbs.OpWrite, (*world).writes, fault{1, 1, 0x02, verbs.WCRemAccessErr}},
		{"Read", verbs.OpRead, (*world).reads, fault{0, 1, 0x03, verbs.WCRemAccessErr}},
		{"FetchAdd", verbs.OpFetchAdd, (*world).everyAtomic, fault{0, 1, 0x03, verbs.WCRemAccessErr}}, // and the others
	} {
		w.sub(c.name, func(w *world) outcome {
			if !w.has(c.op) {
				return noted // atomicFetchAdd checks the refusal
			}
			for _, wr := range c.wrs(w) {
				w.Log(wr.Opcode)
				p := w.pair(pairConfig{})
				p.deniedAt(m, under(mw, at(wr, p.a.mem, 0, m, 0)), c.f, oneWay(wr))
			}
			return tested
		})
	}
	owner.a.ok(owner.a.run(under(mw, read(owner.a.mem.sgl(0, 8), m, 0))), verbs.WCRDMARead)
	owner.works()
	return tested
}

// mwRegionClosed: a window does not grant access to memory that is no longer registered.
func mwRegionClosed(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.register(make([]byte, 64), allRights)
	mw := p.window(m, 0, 64, windowRights)
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	if p.busyWith(m, mw, wr) {
		return noted
	}
	p.deniedAt(m, wr, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

func mwWindowClosed(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	mw := p.window(m, 0, 64, windowRights)
	require.NoError(w, mw.Close())
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	p.deniedAt(m, wr, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// mwQPClosed: a window survives when the QP that bound it is closed, but grants no access.
func mwQPClosed(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	owner := w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	mw := owner.window(m, 0, 64, windowRights)
	require.NoError(w, owner.b.id.Close())
	require.NoError(w, owner.b.qp.Close())
	p := w.pair(pairConfig{})
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	same, own := m.keeps(), p.a.mem.keeps()
	wc := p.a.run(wr)
	require.Equal(w, verbs.WCRemAccessErr.String(), wc.Status.String())
	closes(w.T, p.b.id.Done(), "the end of the connection")
	same()
	own()
	require.NoError(w, mw.Close())
	return tested
}

// mwBindInvalid: the objects and values of a bind are checked when it is posted.
func mwBindInvalid(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	mw, m := p.b.allocMW(), w.b.alloc(64, allRights)
	noBind, readOnly := w.b.alloc(64, allRights&^verbs.AccessMWBind), w.b.alloc(64, verbs.AccessMWBind)
	otherPD := w.b.allocPD()
	foreign := w.b.allocIn(otherPD, 64, allRights)
	foreignMW, err := otherPD.AllocMW(verbs.MWType2)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, foreignMW.Close()) })
	freed := w.b.alloc(64, allRights)
	require.NoError(w, freed.Close())
	freedMW := p.b.allocMW()
	require.NoError(w, freedMW.Close())

	change := func(f func(wr *verbs.SendWR)) verbs.SendWR {
		wr := bind(mw, m, 0, 64, windowRights)
		f(&wr)
		return wr
	}
	for _, c := range []struct {
		name   string
		reason error
		wr     verbs.SendWR
	}{
		{"Nothing", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.Bind = nil })},
		{"NoWindow", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.Bind.MW = nil })},
		{"NoRegion", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.Bind.MR = nil })},
		{"ForeignRegion", verbs.ErrForeign, bind(mw, foreign, 0, 64, windowRights)},
		{"ForeignWindow", verbs.ErrForeign, bind(foreignMW, m, 0, 64, windowRights)},
		{"ClosedRegion", verbs.ErrClosed, bind(mw, freed, 0, 64, windowRights)},
		{"ClosedWindow", verbs.ErrClosed, bind(freedMW, m, 0, 64, windowRights)},
		{"NoBindRight", verbs.ErrInvalid, bind(mw, noBind, 0, 64, windowRights)},
		{"WriteOnReadOnly", verbs.ErrInvalid, bind(mw, readOnly, 0, 64, verbs.AccessRemoteWrite)},
		{"AtomicOnReadOnly", verbs.ErrInvalid, bind(mw, readOnly, 0, 64, verbs.AccessRemoteAtomic)},
		{"LocalRight", verbs.ErrInvalid, bind(mw, m, 0, 64, windowRights|verbs.AccessLocalWrite)},
		{"Empty", verbs.ErrInvalid, bind(mw, m, 0, 0, windowRights)},
		{"OnePast", verbs.ErrBounds, bind(mw, m, 0, 65, windowRights)},
		{"OneBefore", verbs.ErrBounds, change(func(wr *verbs.SendWR) { wr.Bind.Addr-- })},
		{"Behind", verbs.ErrBounds, bind(mw, m, 64, 1, windowRights)},
		{"Wrap", verbs.ErrBounds, change(func(wr *verbs.SendWR) { wr.Bind.Length = ones })},
		{"OtherKey", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.RKey ^= 0x100 })},
		{"Inline", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.Flags = verbs.SendInline })},
		{"SGL", verbs.ErrInvalid, change(func(wr *verbs.SendWR) { wr.SGL = m.sgl(0, 8) })},
	} {
		w.sub(c.name, func(w *world) outcome { p.in(w).b.refused(c.reason, c.wr); return tested })
	}
	require.NotEqual(w, mw.NextRKey(), mw.RKey())
	p.b.ok(p.b.run(bind(mw, readOnly, 0, 64, verbs.AccessRemoteRead)), verbs.WCBindMW)
	p.works()
	return tested
}

// mwBindUnsignalled: requests after a bind can use the window, whether or not the bind is
// signalled.
func mwBindUnsignalled(w *world) outcome {
	if w.noWindows() {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	mw := p.b.allocMW()
	p.a.recv(1, p.a.mem.sge(0, 4))
	p.b.post(bind(mw, m, 0, 64, windowRights), verbs.SendWR{ID: 2, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
	require.EqualValues(w, 2, p.b.ok(p.b.sent(), verbs.WCSend).ID)
	p.a.ok(p.a.received(), verbs.WCRecv)
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	p.a.mem.holds(0, m.Bytes()[:8])
	return tested
}
