// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"os"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Tests of optional memory features.
var memoryTests = []test{
	{"Rereg", mrRereg},
	{"ReregAccess", mrReregAccess},
	{"ReregPD", mrReregPD},
	{"ReregInvalid", mrReregInvalid},
	{"OnDemand", mrOnDemand},
	{"Dmabuf", mrDmabuf},
	{"RelaxedOrdering", mrRelaxedOrdering},
}

// reregisters reports whether regions can be changed in place, and requires that the device
// otherwise refuses it.
func (w *world) reregisters() bool {
	w.Helper()
	m := w.b.register(make([]byte, 64), allRights)
	key := m.RKey()
	if !w.unless("rereg-mr", m.Rereg(verbs.ReregAccess, nil, nil, allRights)) {
		return true
	}
	// A refused change changes nothing.
	require.Equal(w, key, m.RKey())
	require.Equal(w, allRights, m.Access())
	w.pair(pairConfig{}).exchangeWrite(m, 0, 64)
	return false
}

// mrRereg replaces the memory of a region.
func mrRereg(w *world) outcome {
	if !w.reregisters() {
		return noted
	}
	p := w.pair(pairConfig{})
	first, second := make([]byte, 128), make([]byte, 4096)
	m := w.b.register(first, allRights)
	p.exchangeWrite(m, 0, 128)
	was := slices.Clone(first)
	require.NoError(w, m.Rereg(verbs.ReregTranslation, nil, second, 0))
	require.Equal(w, 4096, m.Len())
	p.exchangeWrite(m, 0, 4096)
	requireSame(w.T, was, first)
	requireSame(w.T, m.Bytes(), second)
	p.deny(m, m.Addr()+4096)
	return tested
}

// mrReregAccess removes rights and adds them again.
func mrReregAccess(w *world) outcome {
	if !w.reregisters() {
		return noted
	}
	m := w.b.register(make([]byte, 64), allRights)
	require.NoError(w, m.Rereg(verbs.ReregAccess, nil, nil, verbs.AccessLocalWrite|verbs.AccessRemoteRead))
	require.Equal(w, verbs.AccessLocalWrite|verbs.AccessRemoteRead, m.Access())
	p := w.pair(pairConfig{})
	p.a.ok(p.a.run(read(p.a.mem.sgl(0, 64), m, 0)), verbs.WCRDMARead)
	p.deny(m, m.Addr())
	require.NoError(w, m.Rereg(verbs.ReregAccess, nil, nil, allRights))
	w.pair(pairConfig{}).exchangeWrite(m, 0, 64)
	return tested
}

// mrReregPD moves a region into another PD, which the region then keeps alive.
func mrReregPD(w *world) outcome {
	if !w.reregisters() {
		return noted
	}
	pd := w.b.allocPD()
	m := w.b.register(make([]byte, 64), allRights)
	require.NoError(w, m.Rereg(verbs.ReregPD, pd, nil, 0))
	requireErr(w.T, pd.Close(), verbs.ErrBusy)
	w.pair(pairConfig{bPD: pd}).exchangeWrite(m, 0, 64)
	p := w.pair(pairConfig{})
	p.deny(m, m.Addr())
	require.NoError(w, m.Rereg(verbs.ReregPD, w.b.pd, nil, 0))
	w.pair(pairConfig{}).exchangeWrite(m, 0, 64)
	return tested
}

func mrReregInvalid(w *world) outcome {
	if !w.reregisters() {
		return noted
	}
	m := w.b.register(make([]byte, 64), allRights)
	requireErr(w.T, m.Rereg(0, nil, nil, 0), verbs.ErrInvalid)
	requireErr(w.T, m.Rereg(1<<5, nil, nil, 0), verbs.ErrInvalid)
	requireErr(w.T, m.Rereg(verbs.ReregPD, nil, nil, 0), verbs.ErrInvalid)
	requireErr(w.T, m.Rereg(verbs.ReregPD, openHost(w.T, w.f.Passive).pd, nil, 0), verbs.ErrForeign)
	requireErr(w.T, m.Rereg(verbs.ReregTranslation, nil, nil, 0), verbs.ErrInvalid)
	requireErr(w.T, m.Rereg(verbs.ReregAccess, nil, nil, verbs.AccessRemoteWrite), verbs.ErrInvalid)
	w.pair(pairConfig{}).exchangeWrite(m, 0, 64)
	require.NoError(w, m.Close())
	requireClosed(w.T, m.Rereg(verbs.ReregAccess, nil, nil, 0))
	return tested
}

// mrOnDemand registers memory without pinning it.
func mrOnDemand(w *world) outcome {
	mr, err := w.b.pd.RegMR(make([]byte, 4096), allRights|verbs.AccessOnDemand)
	if w.unless("on-demand", err) {
		_, err = w.b.pd.AllocMR(4096, allRights|verbs.AccessOnDemand)
		w.lacking("on-demand", err)
		return noted
	}
	p := w.pair(pairConfig{})
	p.exchangeWrite(w.b.adopt(mr, nil), 0, 4096)
	return tested
}

// mrDmabuf: a descriptor that is not a dma-buf is refused, even by a device that can register one.
func mrDmabuf(w *world) outcome {
	f, err := os.CreateTemp(w.TempDir(), "")
	require.NoError(w, err)
	defer f.Close()
	require.NoError(w, f.Truncate(4096))
	_, err = w.b.pd.RegDmabufMR(0, 4096, 0, int(f.Fd()), allRights)
	if w.unlessRefused("dma-buf", err) {
		return noted
	}
	for _, c := range []struct {
		offset, length, iova uint64
		fd                   int
	}{{0, 0, 0, int(f.Fd())}, {0, 4096, 0, -1}, {ones, 4096, 0, int(f.Fd())}, {0, 4096, ones, int(f.Fd())}} {
		_, err = w.b.pd.RegDmabufMR(c.offset, c.length, c.iova, c.fd, allRights)
		requireErr(w.T, err, verbs.ErrInvalid)
	}
	return tested
}

// mrRelaxedOrdering: every device accepts this hint.
func mrRelaxedOrdering(w *world) outcome {
	p := w.pair(pairConfig{})
	m := w.b.register(make([]byte, 8192), allRights|verbs.AccessRelaxedOrdering)
	require.Equal(w, allRights|verbs.AccessRelaxedOrdering, m.Access())
	p.exchangeWrite(m, 0, 8192)
	p.a.ok(p.a.run(read(p.a.mem.sgl(0, 4096), m, 4096)), verbs.WCRDMARead)
	p.a.mem.holds(0, m.Bytes()[4096:])
	d, ah := w.ud()
	if d == nil {
		return noted
	}
	from := w.a.register(make([]byte, 64), verbs.AccessRelaxedOrdering)
	d.b.recv(1, m.sge(0, grhLen+64))
	wr := d.datagram(ah, 0, 64)
	wr.SGL = from.sgl(0, 64)
	d.a.ok(d.a.run(wr), verbs.WCSend)
	d.b.ok(d.b.received(), verbs.WCRecv)
	m.holds(grhLen, from.Bytes())
	return tested
}
