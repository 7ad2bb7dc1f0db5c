// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var invalidateTests = []test{
	{"Local", invLocal},
	{"LocalInvalid", invLocalInvalid},
	{"Remote", invRemote},
	{"RemoteThenAccess", invRemoteThenAccess},
	{"RemoteWrongKey", invRemoteWrongKey},
	{"RemoteTooLong", invRemoteTooLong},
}

// noInvalidate reports whether the device cannot invalidate windows with op, and requires that it
// then refuses to.
func (w *world) noInvalidate(op verbs.Op, opcode verbs.WROpcode) bool {
	w.Helper()
	if !w.has(op) {
		return w.pair(pairConfig{}).lacks(op, verbs.SendWR{Opcode: opcode})
	}
	return w.noWindows()
}

func invLocal(w *world) outcome {
	if w.noInvalidate(verbs.OpLocalInv, verbs.WRLocalInv) {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(64, allRights)
	mw := p.window(m, 0, 64, windowRights)
	wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	p.b.ok(p.b.run(verbs.SendWR{ID: 2, Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()}), verbs.WCLocalInv)
	p.deniedAt(m, wr, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false)
	return tested
}

// hurtsKernel reports whether invalidating an unbound window must not be tried: rxe in Linux 6.1
// then dereferences the missing region.
func (w *world) hurtsKernel() bool {
	if w.f.userSpace() || w.iwarp() {
		return false
	}
	w.without("inv-unbound")
	return true
}

// invalidatesOthers reports whether the device lets a QP, or its peer, invalidate another QP's
// window, as rxe does.
func (p *pair) invalidatesOthers() bool {
	p.Helper()
	if p.iwarp() || p.f.userSpace() {
		return false
	}
	owner := p.world.pair(pairConfig{})
	mw := owner.window(owner.b.mem, 0, 64, windowRights)
	if wc := p.b.run(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()}); wc.Status != verbs.WCSuccess {
		return false
	}
	mw = owner.window(owner.b.mem, 0, 64, windowRights)
	p.b.recv(1)
	p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: mw.RKey()}), verbs.WCSend)
	require.Equal(p, mw.RKey(), p.b.ok(p.b.received(), verbs.WCRecv).InvalidatedRKey)
	p.without("inv-own-only")
	return true
}

// invalidating returns a pair for the named test, which invalidates a key that it must not. It
// returns nil, and records that, if the device would not survive the test or permits it.
func (w *world) invalidating(name string) *pair {
	w.Helper()
	if name == "Unbound" && w.hurtsKernel() {
		return nil
	}
	p := w.pair(pairConfig{})
	if name == "OtherQP" && p.invalidatesOthers() {
		return nil
	}
	return p
}

// Keys of a pair's passive side that cannot be invalidated.
func unknownKey(p *pair) uint32 { return p.b.mem.RKey() ^ 0x5a5a5a00 }
func zeroKey(*pair) uint32      { return 0 }
func regionKey(p *pair) uint32  { return p.b.mem.RKey() }
func unboundKey(p *pair) uint32 { return p.b.allocMW().RKey() }

// otherWindow is a window on the passive side of a separate pair, which no other QP may invalidate.
type otherWindow struct {
	p  *pair
	mw *verbs.MW
}

func (w *world) otherWindow() otherWindow {
	w.Helper()
	p := w.pair(pairConfig{})
	return otherWindow{p, p.window(p.b.mem, 0, 64, windowRights)}
}

func (o otherWindow) key(*pair) uint32 { return o.mw.RKey() }

// opens requires that the window's key still grants access.
func (o otherWindow) opens(w *world) {
	w.Helper()
	p := o.p.in(w)
	p.a.ok(p.a.run(under(o.mw, read(p.a.mem.sgl(0, 8), p.b.mem, 0))), verbs.WCRDMARead)
}

// invLocalInvalid: the request fails if its key cannot be invalidated, and the connection ends.
func invLocalInvalid(w *world) outcome {
	if w.noInvalidate(verbs.OpLocalInv, verbs.WRLocalInv) {
		return noted
	}
	by := w.pair(pairConfig{})
	other := w.otherWindow()
	for _, c := range []struct {
		name string
		key  func(p *pair) uint32
	}{
		{"Unknown", unknownKey},
		{"Zero", zeroKey},
		{"Region", regionKey},
		{"Unbound", unboundKey},
		{"OtherQP", other.key},
		{"Twice", func(p *pair) uint32 {
			mw := p.window(p.b.mem, 0, 64, windowRights)
			p.b.ok(p.b.run(verbs.SendWR{Opcode: verbs.WRLocalInv, InvalidateRKey: mw.RKey()}), verbs.WCLocalInv)
			return mw.RKey()
		}},
	} {
		w.sub(c.name, func(w *world) outcome {
			if c.name == "Twice" && w.hurtsKernel() {
				return noted
			}
			p := w.invalidating(c.name)
			if p == nil {
				return noted
			}
			key := c.key(p)
			p.a.recv(1)
			p.b.post(verbs.SendWR{ID: 3, Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: key},
				verbs.SendWR{ID: 4, Opcode: verbs.WRSend, Flags: verbs.SendSignaled})
			wc := p.b.sent()
			require.EqualValues(w, 3, wc.ID)
			w.badBind(wc)
			p.b.flushed(p.b.scq, 4)
			closes(w.T, p.a.id.Done(), "the end of the connection")
			p.a.flushed(p.a.rcq, 1)
			by.in(w).works()
			return tested
		})
	}
	p := w.pair(pairConfig{})
	p.b.refused(verbs.ErrInvalid, verbs.SendWR{Opcode: verbs.WRLocalInv, SGL: p.b.mem.sgl(0, 8)})
	p.b.refused(verbs.ErrInvalid, verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendInline})
	other.opens(w)
	return tested
}

// invRemote: the peer invalidates a window with a Send, solicited or not, and the receive
// completion contains the key.
func invRemote(w *world) outcome {
	if w.noInvalidate(verbs.OpSendInv, verbs.WRSendWithInv) {
		return noted
	}
	p := w.pair(pairConfig{})
	m := w.b.alloc(4096, allRights)
	mw := p.b.allocMW()
	for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
		for _, n := range []int{0, 1, 2000} {
			p.b.ok(p.b.run(bind(mw, m, 0, 64, windowRights)), verbs.WCBindMW)
			wr := under(mw, read(p.a.mem.sgl(0, 8), m, 0))
			p.a.ok(p.a.run(wr), verbs.WCRDMARead)
			p.b.recv(5, p.b.mem.sge(0, 2000))
			p.a.ok(p.a.run(verbs.SendWR{ID: 6, Opcode: verbs.WRSendWithInv, Flags: flags, SGL: p.a.mem.sgl(0, n),
				InvalidateRKey: mw.RKey()}), verbs.WCSend)
			wc := p.b.ok(p.b.received(), verbs.WCRecv)
			require.Equal(w, verbs.WCWithInv.String(), wc.Flags.String())
			require.Equal(w, mw.RKey(), wc.InvalidatedRKey)
			require.EqualValues(w, n, wc.ByteLen)
			p.b.mem.holds(0, p.a.mem.Bytes()[:n])
		}
	}
	p.works()
	return tested
}

func invRemoteThenAccess(w *world) outcome {
	if w.noInvalidate(verbs.OpSendInv, verbs.WRSendWithInv) {
		return noted
	}
	for _, c := range []struct {
		opcode verbs.WROpcode
		f      fault
		oneWay bool
	}{
		{verbs.WRRDMAWrite, fault{1, 1, 0x00, verbs.WCRemAccessErr}, true},
		{verbs.WRRDMARead, fault{0, 1, 0x00, verbs.WCRemAccessErr}, false},
	} {
		w.sub(c.opcode.String(), func(w *world) outcome {
			p := w.pair(pairConfig{})
			m := w.b.alloc(64, allRights)
			mw := p.window(m, 0, 64, windowRights)
			p.b.recv(5)
			p.a.ok(p.a.run(verbs.SendWR{Opcode: verbs.WRSendWithInv, InvalidateRKey: mw.RKey()}), verbs.WCSend)
			require.Equal(w, mw.RKey(), p.b.ok(p.b.received(), verbs.WCRecv).InvalidatedRKey)
			p.deniedAt(m, under(mw, at(verbs.SendWR{Opcode: c.opcode}, p.a.mem, 0, m, 0)), c.f, c.oneWay)
			return tested
		})
	}
	return tested
}

// invRemoteWrongKey: a peer must not invalidate regions that belong to a whole PD (RFC 5040 section
// 8.1.1), nor windows of other QPs.
func invRemoteWrongKey(w *world) outcome {
	if w.noInvalidate(verbs.OpSendInv, verbs.WRSendWithInv) {
		return noted
	}
	by := w.pair(pairConfig{})
	other := w.otherWindow()
	for _, c := range []struct {
		name string
		f    fault
		key  func(p *pair) uint32
	}{
		{"Region", fault{0, 1, 0x09, verbs.WCRemAccessErr}, regionKey},
		{"OtherQP", fault{0, 1, 0x09, verbs.WCRemAccessErr}, other.key},
		{"ForeignPD", fault{0, 1, 0x09, verbs.WCRemAccessErr}, func(p *pair) uint32 {
			return p.b.allocIn(p.b.allocPD(), 64, allRights).RKey()
		}},
		{"Unknown", fault{0, 2, 0x09, verbs.WCRemInvReqErr}, unknownKey},
		{"Zero", fault{0, 2, 0x09, verbs.WCRemInvReqErr}, zeroKey},
		{"Unbound", fault{0, 2, 0x09, verbs.WCRemInvReqErr}, unboundKey},
	} {
		w.sub(c.name, func(w *world) outcome {
			p := w.invalidating(c.name)
			if p == nil {
				return noted
			}
			key := c.key(p)
			p.a.recv(9)
			p.b.recv(1, p.b.mem.sge(0, 100))
			p.b.recv(2)
			wc := p.a.run(verbs.SendWR{ID: 3, Opcode: verbs.WRSendWithInv, SGL: p.a.mem.sgl(0, 100),
				InvalidateRKey: key})
			if w.iwarp() {
				p.refusal(wc, c.f, true)
			} else {
				w.tells(wc, c.f.status, verbs.WCSuccess) // rxe acknowledges the message
			}
			if got := p.b.received(); got.Status != verbs.WCSuccess {
				require.EqualValues(w, 1, got.ID)
			} else {
				require.Zero(w, got.Flags&verbs.WCWithInv, "nothing was invalidated")
			}
			p.broken(p.a, p.b, c.f)
			p.b.flushed(p.b.rcq, 2)
			p.a.flushed(p.a.rcq, 9)
			// The keys still grant access.
			by.in(w).works()
			other.opens(w)
			return tested
		})
	}
	return tested
}

// invRemoteTooLong: a message that is too long for its receive invalidates nothing.
func invRemoteTooLong(w *world) outcome {
	if w.noInvalidate(verbs.OpSendInv, verbs.WRSendWithInv) {
		return noted
	}
	by := w.pair(pairConfig{})
	p := w.pair(pairConfig{})
	mw := p.window(p.b.mem, 0, 64, windowRights)
	rest := p.b.mem.keepsBut(0, 10)
	p.b.recv(1, p.b.mem.sge(0, 10))
	p.b.recv(2)
	p.a.run(verbs.SendWR{Opcode: verbs.WRSendWithInv, SGL: p.a.mem.sgl(0, 11), InvalidateRKey: mw.RKey()})
	wc := p.b.received()
	require.EqualValues(w, 1, wc.ID)
	w.tells(wc, verbs.WCLocLenErr)
	p.broken(p.a, p.b, fault{1, 2, 0x05, verbs.WCRemInvReqErr})
	p.b.flushed(p.b.rcq, 2)
	rest()
	by.works()
	return tested
}
