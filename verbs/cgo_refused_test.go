// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestRefusedRequests: requests that the device refuses are not waited for by those after them, take no room in the queue, and
// have no completion when the QP ends. So it is when the device takes fewer than asked, or none.
func TestRefusedRequests(t *testing.T) {
	for name, q := range map[string]struct {
		post     func(qp *verbs.QP, ids ...uint64) (int, error)
		call     string
		complete func(num uint32, n int) int
		most     func(c verbs.QPCap) int
	}{
		"sends": {func(qp *verbs.QP, ids ...uint64) (int, error) {
			wrs := make([]verbs.SendWR, len(ids))
			for i, id := range ids {
				wrs[i] = verbs.SendWR{ID: id, Opcode: verbs.WRSend, Flags: verbs.SendSignaled}
			}
			return qp.PostSend(wrs)
		}, "ibv_post_send", func(num uint32, n int) int { return fakeverbs.CompleteSend(num, n, 0) },
			func(c verbs.QPCap) int { return c.MaxSendWR }},
		"receives": {func(qp *verbs.QP, ids ...uint64) (int, error) {
			wrs := make([]verbs.RecvWR, len(ids))
			for i, id := range ids {
				wrs[i] = verbs.RecvWR{ID: id}
			}
			return qp.PostRecv(wrs)
		}, "ibv_post_recv", func(num uint32, n int) int { return fakeverbs.CompleteRecv(num, n, 0, 0) },
			func(c verbs.QPCap) int { return c.MaxRecvWR }},
	} {
		for _, dev := range []string{"rxe", "siw"} {
			t.Run(name+"/"+dev, func(t *testing.T) {
				var r *rig
				sign := 1
				if dev == "rxe" {
					r = newRXERig(t)
				} else {
					r, sign = newRig(t, "fake1"), -1 // of libsiw's results
				}
				qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8}})
				r.up(qp)
				num, most := qp.Num(), q.most(qp.Cap())
				for _, taken := range []int{1, 0} {
					fakeverbs.FailPost(q.call, 1, fakeverbs.PostFailure{Index: taken, Result: sign * int(syscall.ENOMEM)})
					n, err := q.post(qp, 1, 2, 3)
					require.Equal(t, taken, n)
					require.ErrorIs(t, err, verbs.ErrQueueFull)
					n, err = q.post(qp, 4)
					require.NoError(t, err)
					require.Equal(t, 1, n)
					require.Equal(t, taken+1, q.complete(num, 9))
					require.Equal(t, []uint64{1, 4}[1-taken:], wcIDs(r.poll()))
				}

				fakeverbs.FailPost(q.call, 1, fakeverbs.PostFailure{Index: 1, Result: sign * int(syscall.ENOMEM)})
				n, err := q.post(qp, 1, 2, 3)
				require.Equal(t, 1, n)
				require.Error(t, err)
				for i := 1; i < most; i++ {
					n, err = q.post(qp, uint64(10+i))
					require.NoError(t, err, i)
					require.Equal(t, 1, n)
				}
				_, err = q.post(qp, 99)
				require.ErrorIs(t, err, verbs.ErrQueueFull)
				require.NoError(t, qp.Close())
				wcs := r.poll()
				require.Len(t, wcs, most)
				require.EqualValues(t, 1, wcs[0].ID)
				for i, wc := range wcs[1:] {
					require.EqualValues(t, 11+i, wc.ID)
				}
			})
		}
	}
}
