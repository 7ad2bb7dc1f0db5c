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

// TestErrAfterDrain: a Drain and a Close do not change why a QP has ended, also if its requests
// were flushed and nothing else told.
func TestErrAfterDrain(t *testing.T) {
	for _, dev := range []string{"fake0", "fake1"} {
		for _, c := range []struct {
			name string
			end  func(r *rig)
			want error
		}{
			{"nothing else", func(*rig) {}, verbs.EndModify},
			{"a request", func(r *rig) {
				r.post(r.qp, writes(r.mr, 1)...)
				require.Equal(r, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, uint32(verbs.WCRemAccessErr)))
				require.Len(r, r.poll(), 1)
			}, verbs.WCRemAccessErr},
			{"flushed", func(r *rig) {
				r.post(r.qp, writes(r.mr, 1)...)
				require.Equal(r, 1, fakeverbs.CompleteSend(r.qp.Num(), 1, uint32(verbs.WCWRFlushErr)))
				require.Len(r, r.poll(), 1)
			}, verbs.WCWRFlushErr},
		} {
			t.Run(dev+"/"+c.name, func(t *testing.T) {
				r := newRig(t, dev)
				r.up(r.qp)
				c.end(r)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				require.NoError(t, r.qp.Drain(ctx))
				require.Equal(t, c.want, r.qp.Err())
				require.NoError(t, r.qp.Close())
				require.Equal(t, c.want, r.qp.Err())
			})
		}
	}
}
