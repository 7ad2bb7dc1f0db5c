// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestDrainWaits: Drain ends when the device has flushed all that a QP had, and not before. The
// program sees nothing of the marks by which the provider knows.
func TestDrainWaits(t *testing.T) {
	flush := uint32(verbs.WCWRFlushErr)
	r := newRig(t, "fake0")
	srq := r.srq()
	for _, c := range []struct {
		name  string
		qp    *verbs.QP
		recvs int // with the mark
	}{
		{"receive queue", r.newQP(verbs.QPConfig{}), 3},
		{"SRQ", r.newQP(verbs.QPConfig{SRQ: srq}), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeverbs.LateFlush(true)
			r.up(c.qp)
			r.post(c.qp, writes(r.mr, 3)...)
			if c.recvs > 0 {
				_, err := c.qp.PostRecv([]verbs.RecvWR{{ID: 7}, {ID: 8}})
				require.NoError(t, err)
			}
			for _, send := range []int{1, 2, 1} { // the mark comes last
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.ErrorIs(t, c.qp.Drain(ctx), context.DeadlineExceeded)
				cancel()
				require.Equal(t, send, fakeverbs.CompleteSend(c.qp.Num(), send, flush))
			}
			want := []uint64{0, 1, 2}
			if c.recvs > 0 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.ErrorIs(t, c.qp.Drain(ctx), context.DeadlineExceeded)
				cancel()
				require.Equal(t, c.recvs, fakeverbs.CompleteRecv(c.qp.Num(), c.recvs, flush, 0))
				want = append(want, 7, 8)
			}
			require.NoError(t, c.qp.Drain(limited(t)))
			require.Equal(t, want, wcIDs(r.poll()))
			require.NoError(t, c.qp.Drain(limited(t)))
			require.Empty(t, r.poll())
			require.NoError(t, c.qp.Close())
			require.Empty(t, r.poll())
		})
	}
}

// TestCloseEndsItsWait: a device that does not flush does not keep Close for ever.
func TestCloseEndsItsWait(t *testing.T) {
	resetRigs(t, func(t *testing.T, r *rig) {
		r.up(r.qp)
		r.post(r.qp, writes(r.mr, 2)...)
		fakeverbs.LateFlush(true)
		closed := make(chan error)
		go func() { closed <- r.qp.Close() }()
		select {
		case err := <-closed:
			require.NoError(t, err)
		case <-time.After(30 * time.Second):
			require.FailNow(t, "Close has not returned")
		}
		if hasLedger(r) {
			require.Equal(t, []uint64{0, 1}, wcIDs(r.poll()), "the provider flushes them")
		}
	})
}
