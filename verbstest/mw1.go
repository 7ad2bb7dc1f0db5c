// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Type 1 windows are bound by a separate call that chooses the key, for every QP of the PD, and can
// be bound again at any time.
var mw1Tests = []test{
	{"Alloc", mw1Alloc},
	{"Access", mw1Access},
	{"Rights", mw1Rights},
	{"Bounds", mw1Bounds},
	{"Rebind", mw1Rebind},
	{"Unbind", mw1Unbind},
	{"AnyQP", mw1AnyQP},
	{"OtherPD", mw1OtherPD},
	{"NotInvalidated", mw1NotInvalidated},
	{"RegionClosed", mw1RegionClosed},
	{"WindowClosed", mw1WindowClosed},
	{"QPClosed", mw1QPClosed},
	{"BindInvalid", mw1BindInvalid},
	{"BindState", mw1BindState},
	{"Order", mw1Order},
	{"QueueFull", mw1QueueFull},
}

// window1 allocates a type 1 window on the passive side, or returns nil if the device lacks them.
func (w *world) window1() *verbs.MW {
	w.Helper()
	mw, err := w.b.pd.AllocMW(verbs.MWType1)
	if w.unless("mw1", err) {
		return nil
	}
	w.Cleanup(func() { require.NoError(w, mw.Close()) })
	return mw
}

// bind1 binds mw to n bytes of m at off and waits for the completion.
func (s *side) bind1(mw *verbs.MW, m *mem, off, n int, access verbs.AccessFlags) {
	s.Helper()
	before := mw.RKey()
	require.NoError(s, s.qp.BindMW(51, verbs.SendSignaled, bind1(mw, m, off, n, access)))
	require.NotEqual(s, before, mw.RKey(), "every bind has a key of its own")
	require.Equal(s, before>>8, mw.RKey()>>8)
	require.EqualValues(s, 51, s.ok(s.sent(), verbs.WCBindMW).ID)
}

func bind1(mw *verbs.MW, m *mem, off, n int, access verbs.AccessFlags) verbs.MWBind {
	m.closesAfter(mw)
	return verbs.MWBind{MW: mw, MR: m.MR, Addr: m.at(off), Length: uint64(n), Access: access}
}

func mw1Alloc(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	require.Equal(w, verbs.MWType1, mw.Type())
	require.NotNil(w, mw.Provider())
	require.NotZero(w, w.b.attr.DeviceCapFlags&verbs.DeviceMemWindow)
	require.NotEqual(w, mw.RKey(), w.window1().RKey())
	// The key from the allocation grants no access.
	p := w.pair(pairConfig{})
	p.deniedAt(p.b.mem, under(mw, read(p.a.mem.sgl(0, 8), p.b.mem, 0)), fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// mw1Access writes, reads and performs atomics through a window in the middle of a region without
// remote access.
func mw1Access(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
	p.b.bind1(mw, m, 1000, 100, windowRights)
	p.usesWindow(mw, m)
	return tested
}

func mw1Rights(w *world) outcome {
	if w.window1() == nil {
		return noted
	}
	for _, c := range []struct {
		name   string // of the first of them
		access verbs.AccessFlags
		op     verbs.Op
		wrs    func(w *world) []verbs.SendWR
	}{
		{verbs.WRRDMAWrite.String(), windowRights &^ verbs.AccessRemoteWrite, verbs.OpWrite, (*world).writes},
		{verbs.WRRDMARead.String(), windowRights &^ verbs.AccessRemoteRead, verbs.OpRead, (*world).reads},
		{verbs.WRAtomicFetchAndAdd.String(), windowRights &^ verbs.AccessRemoteAtomic, verbs.OpFetchAdd,
			(*world).everyAtomic},
	} {
		if !w.has(c.op) {
			continue // atomicFetchAdd checks the refusal
		}
		w.sub(c.name, func(w *world) outcome {
			for _, wr := range c.wrs(w) {
				w.Log(wr.Opcode)
				mw, p, m := w.window1(), w.pair(pairConfig{}), w.b.alloc(64, allRights)
				p.b.bind1(mw, m, 0, 64, c.access)
				p.deniedAt(m, under(mw, at(wr, p.a.mem, 0, m, 0)), fault{0, 1, 0x02, verbs.WCRemAccessErr}, oneWay(wr))
			}
			return tested
		})
	}
	return tested
}

func mw1Bounds(w *world) outcome {
	if w.window1() == nil {
		return noted
	}
	for _, c := range []struct {
		name   string
		off, n int
	}{{"OnePast", 1000, 101}, {"OneBefore", 999, 2}, {"Behind", 1100, 1}} {
		w.sub(c.name, func(w *world) outcome {
			mw, p, m := w.window1(), w.pair(pairConfig{}), w.b.alloc(4096, allRights)
			p.b.bind1(mw, m, 1000, 100, windowRights)
			p.outside(m, under(mw, read(p.a.mem.sgl(0, c.n), m, c.off)), fault{0, 1, 0x01, verbs.WCRemAccessErr}, false)
			return tested
		})
	}
	return tested
}

// mw1Rebind: a bound window can be bound again without being invalidated. Its old keys grant no
// access.
func mw1Rebind(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p := w.pair(pairConfig{})
	m, other := w.b.alloc(4096, allRights), w.b.alloc(4096, allRights)
	other.fill(9)
	var old uint32
	for i := range 5 {
		to := m
		if i%2 == 1 {
			to = other
		}
		old = mw.RKey()
		p.b.bind1(mw, to, 200*i, 100, windowRights)
		p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 100), to, 200*i))), verbs.WCRDMARead)
		p.a.mem.holds(0, to.Bytes()[200*i:200*i+100])
	}
	p.deniedAt(other, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: p.a.mem.sgl(0, 8), RemoteAddr: other.at(600),
		RKey: old}, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// mw1Unbind: a bind of length 0 removes access, and the window can be bound again.
func mw1Unbind(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, m := w.pair(pairConfig{}), w.b.alloc(4096, allRights)
	p.b.bind1(mw, m, 0, 64, windowRights)
	bound := mw.RKey()
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 8), m, 0))), verbs.WCRDMARead)
	p.b.bind1(mw, m, 0, 0, 0)
	unbound := mw.RKey()
	for _, key := range []uint32{bound, unbound} {
		p := w.pair(pairConfig{})
		p.deniedAt(m, verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: p.a.mem.sgl(0, 8), RemoteAddr: m.at(0), RKey: key},
			fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	}
	p.b.bind1(mw, m, 100, 64, windowRights)
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 64), m, 100))), verbs.WCRDMARead)
	p.a.mem.holds(0, m.Bytes()[100:164])
	return tested
}

// mw1AnyQP: every connection of the PD may use the window, whichever it was bound on.
func mw1AnyQP(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, other := w.pair(pairConfig{}), w.pair(pairConfig{})
	m := w.b.alloc(4096, allRights)
	p.b.bind1(mw, m, 0, 64, windowRights)
	for _, p := range []*pair{other, p} {
		p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 64), m, 0))), verbs.WCRDMARead)
		p.a.mem.holds(0, m.Bytes()[:64])
	}
	other.b.bind1(mw, m, 64, 64, windowRights)
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 64), m, 64))), verbs.WCRDMARead)
	p.a.mem.holds(0, m.Bytes()[64:128])
	return tested
}

func mw1OtherPD(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, foreign := w.pair(pairConfig{}), w.pair(pairConfig{bPD: w.b.allocPD()})
	m := w.b.alloc(64, allRights)
	p.b.bind1(mw, m, 0, 64, windowRights)
	requireErr(w.T, foreign.b.qp.BindMW(1, 0, bind1(mw, m, 0, 64, windowRights)), verbs.ErrForeign)
	foreign.deniedAt(m, under(mw, read(foreign.a.mem.sgl(0, 8), m, 0)), fault{0, 1, 0x03, verbs.WCRemAccessErr}, false)
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 8), m, 0))), verbs.WCRDMARead)
	return tested
}

// mw1NotInvalidated: a window that belongs to the whole PD cannot be invalidated through one of its
// QPs.
func mw1NotInvalidated(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	by, m := w.pair(pairConfig{}), w.b.alloc(64, allRights)
	by.b.bind1(mw, m, 0, 64, windowRights)
	w.sub("Local", func(w *world) outcome {
		p := w.pair(pairConfig{})
		inv := verbs.SendWR{ID: 3, Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()}
		if p.lacks(verbs.OpLocalInv, inv) {
			return noted
		}
		wc := p.b.run(inv)
		w.badBind(wc)
		return tested
	})
	w.sub("Remote", func(w *world) outcome {
		p := w.pair(pairConfig{})
		inv := verbs.SendWR{ID: 3, Opcode: verbs.WRSendWithInv, InvalidateRKey: mw.RKey()}
		if p.lacks(verbs.OpSendInv, inv) {
			return noted
		}
		p.b.recv(1)
		wc := p.a.run(inv)
		if w.iwarp() {
			p.refusal(wc, fault{status: verbs.WCRemAccessErr}, true)
		} else {
			w.tells(wc, verbs.WCRemAccessErr, verbs.WCSuccess) // rxe acknowledges the message
		}
		if got := p.b.received(); got.Status == verbs.WCSuccess {
			require.Zero(w, got.Flags&verbs.WCWithInv, "nothing was invalidated")
		}
		p.broken(p.a, p.b, fault{0, 1, 0x09, verbs.WCRemAccessErr})
		return tested
	})
	by.a.ok(by.a.run(under(mw, read(by.a.mem.sgl(0, 8), m, 0))), verbs.WCRDMARead)
	by.works()
	return tested
}

// mw1RegionClosed: either a region with a bound window cannot be closed, or the window grants no
// access afterwards.
func mw1RegionClosed(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.register(make([]byte, 64), allRights)
	p.b.bind1(mw, m, 0, 64, windowRights)
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	if p.busyWith(m, mw, wr) {
		return noted
	}
	p.deniedAt(m, wr, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

func mw1WindowClosed(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, m := w.pair(pairConfig{}), w.b.alloc(64, allRights)
	p.b.bind1(mw, m, 0, 64, windowRights)
	require.NoError(w, mw.Close())
	requireErr(w.T, p.b.qp.BindMW(1, 0, bind1(mw, m, 0, 64, windowRights)), verbs.ErrClosed)
	p.deniedAt(m, under(mw, read(p.a.mem.sgl(0, 8), m, 0)), fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// mw1QPClosed: a window still grants access after the QP through which it was bound is closed.
func mw1QPClosed(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	owner, p := w.pair(pairConfig{}), w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	owner.b.bind1(mw, m, 0, 64, windowRights)
	require.NoError(w, owner.b.id.Close())
	require.NoError(w, owner.b.qp.Close())
	p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 8), m, 0))), verbs.WCRDMARead)
	p.a.mem.holds(0, m.Bytes()[:8])
	return tested
}

func mw1BindInvalid(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, m := w.pair(pairConfig{}), w.b.alloc(64, allRights)
	noBind, readOnly := w.b.alloc(64, allRights&^verbs.AccessMWBind), w.b.alloc(64, verbs.AccessMWBind)
	foreign := w.b.allocIn(w.b.allocPD(), 64, allRights)
	freed := w.b.alloc(64, allRights)
	require.NoError(w, freed.Close())
	key := mw.RKey()
	for _, c := range []struct {
		name   string
		reason error
		flags  verbs.SendFlags
		bind   verbs.MWBind
	}{
		{"NoWindow", verbs.ErrInvalid, 0, verbs.MWBind{MR: m.MR}},
		{"NoRegion", verbs.ErrInvalid, 0, verbs.MWBind{MW: mw}},
		{"ForeignRegion", verbs.ErrForeign, 0, bind1(mw, foreign, 0, 64, windowRights)},
		{"ClosedRegion", verbs.ErrClosed, 0, bind1(mw, freed, 0, 64, windowRights)},
		{"NoBindRight", verbs.ErrInvalid, 0, bind1(mw, noBind, 0, 64, windowRights)},
		{"WriteOnReadOnly", verbs.ErrInvalid, 0, bind1(mw, readOnly, 0, 64, verbs.AccessRemoteWrite)},
		{"LocalRight", verbs.ErrInvalid, 0, bind1(mw, m, 0, 64, windowRights|verbs.AccessLocalWrite)},
		{"OnePast", verbs.ErrBounds, 0, bind1(mw, m, 0, 65, windowRights)},
		{"Behind", verbs.ErrBounds, 0, bind1(mw, m, 64, 1, windowRights)},
		{"Inline", verbs.ErrInvalid, verbs.SendInline, bind1(mw, m, 0, 64, windowRights)},
		{"Solicited", verbs.ErrInvalid, verbs.SendSolicited, bind1(mw, m, 0, 64, windowRights)},
	} {
		requireErr(w.T, p.b.qp.BindMW(1, c.flags, c.bind), c.reason)
		require.Equal(w, key, mw.RKey(), c.name)
	}
	// Each type of window is bound in its own way.
	p.b.refused(verbs.ErrInvalid,
		verbs.SendWR{Opcode: verbs.WRBindMW, RKey: mw.NextRKey(), Bind: ptr(bind1(mw, m, 0, 64, windowRights))})
	if !w.noWindows() {
		requireErr(w.T, p.b.qp.BindMW(1, 0, bind1(p.b.allocMW(), m, 0, 64, windowRights)), verbs.ErrInvalid)
	}
	p.b.idle(p.b.scq)
	p.b.bind1(mw, readOnly, 0, 64, verbs.AccessRemoteRead)
	p.works()
	return tested
}

func ptr[T any](v T) *T { return &v }

// mw1BindState: a bind is allowed in the states in which send requests are.
func mw1BindState(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	m, s := w.b.alloc(64, allRights), w.b.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	b := bind1(mw, m, 0, 64, windowRights)
	requireErr(w.T, s.qp.BindMW(1, 0, b), verbs.ErrState)
	bindINIT(s)
	requireErr(w.T, s.qp.BindMW(1, 0, b), verbs.ErrState)
	require.NoError(w, s.modify(verbs.QPStateErr))
	require.NoError(w, s.qp.BindMW(2, 0, b))
	s.flushed(s.scq, 2)
	p := w.pair(pairConfig{})
	p.deniedAt(m, under(mw, read(p.a.mem.sgl(0, 8), m, 0)), fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	require.NoError(w, s.qp.Close())
	requireErr(w.T, s.qp.BindMW(3, 0, b), verbs.ErrClosed)
	return tested
}

// mw1Order: requests after a bind can use the window, whether or not the bind is signalled.
func mw1Order(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p, m := w.pair(pairConfig{}), w.b.alloc(4096, allRights)
	for i, flags := range []verbs.SendFlags{0, verbs.SendFence} {
		p.a.recv(1)
		p.b.post(verbs.SendWR{ID: 1, Opcode: verbs.WRRDMARead, SGL: p.b.mem.sgl(0, 1000), RemoteAddr: p.a.mem.at(0),
			RKey: p.a.mem.RKey()})
		require.NoError(w, p.b.qp.BindMW(2, flags, bind1(mw, m, 100*i, 64, windowRights)))
		p.b.ok(p.b.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSend}), verbs.WCSend)
		p.a.ok(p.a.received(), verbs.WCRecv)
		p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 64), m, 100*i))), verbs.WCRDMARead)
		p.a.mem.holds(0, m.Bytes()[100*i:100*i+64])
	}
	p.works()
	return tested
}

// mw1QueueFull: a bind needs an entry in the send queue. Without one, the window does not change.
func mw1QueueFull(w *world) outcome {
	mw := w.window1()
	if mw == nil {
		return noted
	}
	p := w.pair(pairConfig{cap: verbs.QPCap{MaxSendWR: 4}, aParam: cm.ConnParam{ResponderResources: 1},
		bParam: cm.ConnParam{InitiatorDepth: 1}})
	const n = 1 << 20
	m, src, dst := w.b.alloc(4096, allRights), w.a.alloc(n, allRights), w.b.alloc(n, verbs.AccessLocalWrite)
	usable := func(off int) {
		w.Helper()
		p.a.ok(p.a.run(under(mw, read(p.a.mem.sgl(0, 64), m, off))), verbs.WCRDMARead)
		p.a.mem.holds(0, m.Bytes()[off:off+64])
	}
	// These requests keep the queue full for a while: Reads, which a depth of 1 sends one at a
	// time, or Sends, on fabrics where a Send may arrive before its receive is posted.
	filler, does := read(dst.sgl(0, n), src, 0), verbs.WCRDMARead
	if !w.iwarp() {
		filler, does = verbs.SendWR{Opcode: verbs.WRSend}, verbs.WCSend
	}
	wrs := make([]verbs.SendWR, p.b.qp.Cap().MaxSendWR)
	for i := range wrs {
		wrs[i] = filler
		wrs[i].ID, wrs[i].Flags = uint64(i), verbs.SendSignaled
	}
	p.b.bind1(mw, m, 0, 64, windowRights)
	for try := 0; ; try++ {
		key := mw.RKey()
		p.b.post(wrs...)
		err := p.b.qp.BindMW(52, verbs.SendSignaled, bind1(mw, m, 0, 64, windowRights))
		for i := range wrs {
			if does == verbs.WCSend {
				p.a.recv(uint64(i))
				p.a.ok(p.a.received(), verbs.WCRecv)
			}
			require.EqualValues(w, i, p.b.ok(p.b.sent(), does).ID)
		}
		if err != nil {
			requireErr(w.T, err, verbs.ErrQueueFull)
			require.Equal(w, key, mw.RKey())
			break
		}
		require.EqualValues(w, 52, p.b.ok(p.b.sent(), verbs.WCBindMW).ID)
		require.Equal(w, verbs.WCRDMARead, does, "a full queue has taken a bind")
		require.Less(w, try, 20, "each time a Read had ended before")
	}
	p.b.idle(p.b.scq)
	usable(0)
	p.b.bind1(mw, m, 100, 64, windowRights)
	usable(100)
	p.works()
	return tested
}
