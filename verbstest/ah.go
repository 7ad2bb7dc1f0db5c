// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var ahTests = []test{
	{"Create", ahCreate},
	{"Invalid", ahInvalid},
	{"Close", ahClose},
	{"Many", ahMany},
}

// paths returns two sides and the path between them. ok is false if the device lacks address
// handles; it must then refuse to create them.
func (w *world) paths() (p *pair, path verbs.AHAttr, ok bool) {
	w.Helper()
	if w.overIWARP() {
		_, err := w.a.pd.CreateAH(verbs.AHAttr{PortNum: 1, IsGlobal: true})
		w.lacking("ah", err)
		return nil, path, false
	}
	p = w.unconnected(pairConfig{typ: verbs.QPTypeUD})
	return p, p.a.path(p.b), true
}

func (s *side) createAH(attr verbs.AHAttr) *verbs.AH {
	s.Helper()
	ah, err := s.qp.PD().CreateAH(attr)
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, ah.Close()) })
	return ah
}

func ahCreate(w *world) outcome {
	p, path, ok := w.paths()
	if !ok {
		return noted
	}
	ah := p.a.createAH(path)
	require.Equal(w, path, ah.Attr())
	require.Same(w, w.a.pd, ah.PD())
	require.NotNil(w, ah.Provider())
	path.SL, path.GRH.TrafficClass, path.GRH.FlowLabel = 3, 8, 0xfffff
	require.Equal(w, path, p.a.createAH(path).Attr())
	return tested
}

func ahInvalid(w *world) outcome {
	p, path, ok := w.paths()
	if !ok {
		return noted
	}
	for _, c := range []struct {
		name string
		set  func(a *verbs.AHAttr)
	}{
		{"port 0", func(a *verbs.AHAttr) { a.PortNum = 0 }},
		{"no such port", func(a *verbs.AHAttr) { a.PortNum = uint8(w.a.attr.PhysPortCnt + 1) }},
		{"flow label", func(a *verbs.AHAttr) { a.GRH.FlowLabel = 1 << 20 }},
		{"sgid index", func(a *verbs.AHAttr) { a.GRH.SGIDIndex = 255 }},
	} {
		bad := path
		c.set(&bad)
		_, err := p.a.qp.PD().CreateAH(bad)
		require.True(w, errors.Is(err, verbs.ErrInvalid) || errors.Is(err, verbs.ErrNoGID), "%s: %v", c.name, err)
	}
	if w.roce() {
		path.IsGlobal = false
		_, err := p.a.qp.PD().CreateAH(path)
		require.ErrorIs(w, err, verbs.ErrInvalid, "RoCE has no local addresses")
	}
	return tested
}

func ahClose(w *world) outcome {
	_, path, ok := w.paths()
	if !ok {
		return noted
	}
	pd := w.a.allocPD()
	ah, err := pd.CreateAH(path)
	require.NoError(w, err)
	err = pd.Close()
	requireErr(w.T, err, verbs.ErrBusy)
	require.ErrorContains(w, err, "1 AH")
	require.NoError(w, ah.Close())
	require.NoError(w, ah.Close())
	require.NoError(w, pd.Close())
	_, err = pd.CreateAH(path)
	requireClosed(w.T, err)
	require.NoError(w, (*verbs.AH)(nil).Close())
	return tested
}

func ahMany(w *world) outcome {
	p, path, ok := w.paths()
	if !ok {
		return noted
	}
	for range 100 {
		p.a.createAH(path)
	}
	return tested
}
