// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package forward_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// BenchmarkPostPoll posts Writes and polls their completions, on a device whose requests complete
// at once: what a layer of handles costs.
func BenchmarkPostPoll(b *testing.B) {
	for _, layers := range []int{0, 1, 2} {
		for _, n := range []int{1, 16} {
			b.Run(fmt.Sprintf("layers=%d/list=%d", layers, n), func(b *testing.B) {
				fakeverbs.Start(b)
				fakeverbs.AutoComplete(true)
				dev, err := verbs.DeviceByName("fake0")
				require.NoError(b, err)
				for range layers {
					dev = forward.Wrap(dev)
				}
				ctx, err := dev.Open()
				require.NoError(b, err)
				defer func() { require.NoError(b, ctx.CloseAll()) }()
				pd, err := ctx.AllocPD()
				require.NoError(b, err)
				mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite)
				require.NoError(b, err)
				cq, err := ctx.CreateCQ(verbs.CQConfig{})
				require.NoError(b, err)
				qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
				require.NoError(b, err)
				for _, to := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR, verbs.QPStateRTS} {
					require.NoError(b, qp.Modify(
						verbs.QPAttr{State: to, PortNum: 1, PathMTU: verbs.MTU1024, MinRNRTimer: 12,
							DestQPNum: qp.Num(), AH: verbs.AHAttr{PortNum: 1, IsGlobal: true}}, toState[to]))
				}
				sge, err := mr.SGE(0, 64)
				require.NoError(b, err)
				wrs, wcs := make([]verbs.SendWR, n), make([]verbs.WC, n)
				for i := range wrs {
					wrs[i] = verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge}}
				}
				b.ReportAllocs()
				for b.Loop() {
					if k, err := qp.PostSend(wrs); k != n || err != nil {
						b.Fatal(k, err)
					}
					if k, err := cq.Poll(wcs); k != n || err != nil {
						b.Fatal(k, err)
					}
				}
			})
		}
	}
}

// toState are the attributes that a QP is brought up with.
var toState = map[verbs.QPState]verbs.QPAttrMask{
	verbs.QPStateInit: verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags,
	verbs.QPStateRTR: verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN |
		verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer,
	verbs.QPStateRTS: verbs.QPAttrState | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrSQPSN |
		verbs.QPAttrMaxRdAtomic,
}
