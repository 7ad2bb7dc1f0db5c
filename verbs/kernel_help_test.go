// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// toRTS brings an RC QP up by hand, connected to itself.
func toRTS(t testing.TB, qp *verbs.QP) {
	t.Helper()
	require.NoError(t, qp.Modify(
		verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: verbs.AccessRemoteWrite},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	require.NoError(t, qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPNum: qp.Num(), RQPSN: 5, MaxDestRdAtomic: 2,
			MinRNRTimer: 12, AH: verbs.AHAttr{IsGlobal: true, PortNum: 1}},
		verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|
			verbs.QPAttrRQPSN|verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer))
	require.NoError(t, qp.Modify(
		verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: 6, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 2},
		verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|
			verbs.QPAttrMaxRdAtomic))
}
