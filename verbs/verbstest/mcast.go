// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var mcastTests = []test{
	{"Attach", mcastAttach},
	{"WrongType", mcastWrongType},
	{"Closed", mcastClosed},
}

// group is a multicast GID: over RoCE v2 that of an IPv4 group.
var group = verbs.GIDFromAddr(netip.MustParseAddr("239.1.2.3"))

// noMulticast reports whether the device has no multicast, and requires that it then refuses it.
func (w *world) noMulticast() bool {
	w.Helper()
	if !w.iwarp() {
		return false
	}
	if w.kernelIWARP() {
		return w.noHand(verbs.QPTypeUD) // without datagrams there are no groups
	}
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	w.lacking("multicast", s.qp.AttachMcast(group, 0))
	w.lacking("multicast", s.qp.DetachMcast(group, 0))
	return true
}

func mcastAttach(w *world) outcome {
	if w.noMulticast() {
		return noted
	}
	p, _ := w.ud()
	require.NoError(w, p.b.qp.AttachMcast(group, 0))
	require.NoError(w, p.b.qp.DetachMcast(group, 0))
	require.ErrorIs(w, p.b.qp.DetachMcast(group, 0), verbs.ErrInvalid, "it is not attached")
	for i := range 3 {
		g := group
		g[15] += byte(i)
		require.NoError(w, p.b.qp.AttachMcast(g, 0))
	}
	return tested
}

func mcastWrongType(w *world) outcome {
	if w.noMulticast() {
		return noted
	}
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	err := s.qp.AttachMcast(group, 0)
	requireErr(w.T, err, verbs.ErrInvalid)
	require.ErrorContains(w, err, "UD")
	requireErr(w.T, s.qp.DetachMcast(group, 0), verbs.ErrInvalid)
	return tested
}

func mcastClosed(w *world) outcome {
	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.NoError(w, s.qp.Close())
	requireClosed(w.T, s.qp.AttachMcast(group, 0))
	requireClosed(w.T, s.qp.DetachMcast(group, 0))
	return tested
}
