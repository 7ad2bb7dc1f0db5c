// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestQueryFindsFailure: a QP that the device has put into ERR is found there by a query, before
// anybody has polled the completion that tells why; then it is the reason.
func TestQueryFindsFailure(t *testing.T) {
	resetRigs(t, func(t *testing.T, r *rig) {
		r.up(r.qp)
		failed := r.failed(r.qp)
		_, err := r.qp.PostRecv([]verbs.RecvWR{{ID: 9}})
		require.NoError(t, err)
		r.post(r.qp, writes(r.mr, 2)...)
		require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, uint32(verbs.WCRemAccessErr)))
		require.True(t, fakeverbs.MoveQP(r.qp.Num(), int(verbs.QPStateErr)))
		require.Equal(t, verbs.QPStateErr, r.qp.State())
		require.Error(t, r.qp.Err())
		wcs := r.poll()
		require.ElementsMatch(t, []uint64{0, 1, 9}, wcIDs(wcs))
		require.Equal(t, verbs.WCRemAccessErr, wcs[0].Status)
		require.ErrorIs(t, r.qp.Err(), verbs.WCRemAccessErr)
		requireFired(t, failed)
	})
}

// TestQueryFindsSendQueue: a device that has stopped only the send queue says so, and the program
// can start it again.
func TestQueryFindsSendQueue(t *testing.T) {
	r := newRig(t, "fake0")
	uc := r.newQP(verbs.QPConfig{Type: verbs.QPTypeUC})
	require.NoError(t, uc.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|
			verbs.QPAttrAccessFlags))
	require.NoError(t, uc.Modify(
		verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, AH: verbs.AHAttr{IsGlobal: true, PortNum: 1}},
		verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN))
	require.NoError(t, uc.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
	require.Equal(t, verbs.QPStateRTS, uc.State())
	require.True(t, fakeverbs.MoveQP(uc.Num(), int(verbs.QPStateSQE)))
	require.Equal(t, verbs.QPStateSQE, uc.State())
	require.NoError(t, uc.Err())
	require.NoError(t, uc.Modify(verbs.QPAttr{State: verbs.QPStateRTS, CurState: verbs.QPStateSQE},
		verbs.QPAttrState|verbs.QPAttrCurState))
	require.Equal(t, verbs.QPStateRTS, uc.State())
}
