// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var pdTests = []test{
	{"Alloc", pdAlloc},
	{"Several", pdSeveral},
}

func pdAlloc(w *world) outcome {
	pd, err := w.a.ctx.AllocPD()
	require.NoError(w, err)
	require.Same(w, w.a.ctx, pd.Context())
	mr, err := pd.AllocMR(64, 0)
	require.NoError(w, err)
	require.Same(w, pd, mr.PD())

	requireErr(w.T, pd.Close(), verbs.ErrBusy)
	require.NoError(w, mr.Close())
	require.NoError(w, pd.Close())
	_, err = pd.AllocMR(64, 0)
	requireClosed(w.T, err)
	return tested
}

// pdSeveral: connections in different PDs of one context work concurrently. The tests of operations
// check that they cannot access each other's memory.
func pdSeveral(w *world) outcome {
	one := w.pair(pairConfig{aPD: w.a.allocPD(), bPD: w.b.allocPD()})
	two := w.pair(pairConfig{})
	require.NotSame(w, one.a.qp.PD(), two.a.qp.PD())
	one.works()
	two.works()
	return tested
}
