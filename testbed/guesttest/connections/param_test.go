// SPDX-License-Identifier: BSD-3-Clause

package connections

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// TestParameters: the QPs of an InfiniBand connection have the attributes given by ConnParam and
// Config, and behave accordingly.
func TestParameters(t *testing.T) {
	dev := device(t, "rxe0")
	for _, c := range []struct {
		name            string
		tos             uint8
		active, passive cm.ConnParam
		want            [2]verbs.QPAttr // of the active QP, and of the passive one
		patient         bool            // the sender waits for a receiver that is not ready
	}{
		{"given", 32, cm.ConnParam{RetryCount: 2, RNRRetryCount: 3, MinRNRTimer: 5},
			cm.ConnParam{RetryCount: 4, RNRRetryCount: cm.None, MinRNRTimer: 6},
			// The RNR retry count is the peer's, the retry count the active side's, and the timer
			// each side's own.
			[2]verbs.QPAttr{{RetryCnt: 2, RNRRetry: 0, MinRNRTimer: 5}, {RetryCnt: 2, RNRRetry: 3, MinRNRTimer: 6}},
			false},
		{"left out", 0, cm.ConnParam{}, cm.ConnParam{},
			[2]verbs.QPAttr{{RetryCnt: cm.DefaultRetryCount, RNRRetry: cm.DefaultRNRRetryCount,
				MinRNRTimer: cm.DefaultMinRNRTimer},
				{RetryCnt: cm.DefaultRetryCount, RNRRetry: cm.DefaultRNRRetryCount,
					MinRNRTimer: cm.DefaultMinRNRTimer}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := cm.Config{Device: dev, TOS: c.tos}
			ln, err := cm.Listen(soon(t), "10.78.0.1:0", cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, ln.Close()) }()
			id, err := cm.Resolve(soon(t), ln.Addr().String(), cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, id.Close()) }()
			a, b := newHalf(t, id.Context(), 0), newHalf(t, id.Context(), 0)
			accepted := make(chan error, 1)
			go func() {
				req, err := ln.Accept(soon(t))
				if err == nil {
					b.id, err = req.Accept(soon(t), b.qp, c.passive)
				}
				accepted <- err
			}()
			require.NoError(t, id.Connect(soon(t), a.qp, c.active))
			require.NoError(t, <-accepted)
			defer func() { require.NoError(t, b.id.Close()) }()
			device, err := id.Context().QueryDevice()
			require.NoError(t, err)
			for i, h := range []*half{a, b} {
				got, err := h.qp.Query()
				require.NoError(t, err)
				want := c.want[i]
				require.Equal(t, [3]uint8{want.RetryCnt, want.RNRRetry, want.MinRNRTimer},
					[3]uint8{got.RetryCnt, got.RNRRetry, got.MinRNRTimer})
				require.Equal(t, c.tos, got.AH.GRH.TrafficClass)
				// Depths of 0 are the maximum of the device.
				require.Equal(t, [2]int{device.MaxQPInitRdAtom, device.MaxQPRdAtom},
					[2]int{got.MaxRdAtomic, got.MaxDestRdAtomic})
			}

			_, err = a.qp.PostSend([]verbs.SendWR{{ID: 1, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}})
			require.NoError(t, err)
			if !c.patient {
				require.Equal(t, verbs.WCRNRRetryExcErr.String(), a.next().Status.String())
				return
			}
			time.Sleep(100 * time.Millisecond)
			n, err := a.cq.Poll(make([]verbs.WC, 1))
			require.NoError(t, err)
			require.Zero(t, n)
			b.recv(2)
			require.Equal(t, verbs.WCSuccess.String(), a.next().Status.String())
			require.EqualValues(t, 2, b.next().ID)
		})
	}
}
