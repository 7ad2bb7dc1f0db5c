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

// TestRefusedRequests: requests that the device refuses are not waited for by those after them,
// take no room in the queue, and have no completion when the QP ends. So it is when the device
// takes fewer than asked, or none.
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
					fakeverbs.FailPost(q.call, 1,
						fakeverbs.PostFailure{Index: taken, Result: sign * int(syscall.ENOMEM)})
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

// TestReceivesGiveRoom: receives that the device has completed give room to others though nobody
// has polled.
func TestReceivesGiveRoom(t *testing.T) {
	for _, dev := range []string{"rxe", "siw"} {
		t.Run(dev, func(t *testing.T) {
			var r *rig
			if dev == "rxe" {
				r = newRXERig(t)
			} else {
				r = newRig(t, "fake1")
			}
			qp := r.newQP(verbs.QPConfig{Cap: verbs.QPCap{MaxRecvWR: 4}})
			r.up(qp)
			post := func(ids ...uint64) (int, error) {
				wrs := make([]verbs.RecvWR, len(ids))
				for i, id := range ids {
					wrs[i].ID = id
				}
				return qp.PostRecv(wrs)
			}
			n, err := post(1, 2, 3, 4)
			require.NoError(t, err)
			require.Equal(t, 4, n)
			require.Equal(t, 2, fakeverbs.CompleteRecv(qp.Num(), 2, 0, 0))
			n, err = post(5, 6, 7)
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			require.Equal(t, 2, n)
			n, err = post(8)
			require.ErrorIs(t, err, verbs.ErrQueueFull)
			require.Zero(t, n)
			require.Equal(t, 4, fakeverbs.CompleteRecv(qp.Num(), 9, 0, 0))
			require.Equal(t, []uint64{1, 2, 3, 4, 5, 6}, wcIDs(r.poll()))
		})
	}
}

// TestPostsByState: sends can be posted from RTS on, receives from INIT on; what is refused is not
// in the queue, and a list without requests is right in every state.
func TestPostsByState(t *testing.T) {
	for name, rig := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        func(t testing.TB) *rig { return newRXERig(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			post := func() (send, recv error) {
				for _, list := range []int{0, 1} {
					_, send = r.qp.PostSend(writes(r.mr, list))
					_, recv = r.qp.PostRecv(make([]verbs.RecvWR, list))
					if list == 0 {
						require.NoError(t, send)
						require.NoError(t, recv)
					}
				}
				return send, recv
			}
			send, recv := post()
			require.ErrorIs(t, send, verbs.ErrState)
			require.ErrorIs(t, recv, verbs.ErrState)
			for _, state := range []verbs.QPState{verbs.QPStateInit, verbs.QPStateRTR} {
				r.qp.Provider().(verbs.ProviderQPMover).Moved(state, nil)
				require.True(t, fakeverbs.MoveQP(r.qp.Num(), int(state)))
				send, recv = post()
				require.ErrorIs(t, send, verbs.ErrState)
				require.NoError(t, recv)
			}
			r.qp.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateRTS, nil)
			require.True(t, fakeverbs.MoveQP(r.qp.Num(), int(verbs.QPStateRTS)))
			send, recv = post()
			require.NoError(t, send)
			require.NoError(t, recv)
			require.Equal(t, 1, fakeverbs.CompleteSend(r.qp.Num(), 9, 0))
			require.Equal(t, 3, fakeverbs.CompleteRecv(r.qp.Num(), 9, 0, 0))
			require.Len(t, r.poll(), 4)
		})
	}
}

// TestDestinationOfOthers: a destination of datagrams in a request of a QP that has none is not
// looked at.
func TestDestinationOfOthers(t *testing.T) {
	for name, rig := range map[string]func(testing.TB) *rig{
		"any device": func(t testing.TB) *rig { return newRig(t, "fake0") },
		"rxe":        func(t testing.TB) *rig { return newRXERig(t) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rig(t)
			r.up(r.qp)
			ah, err := r.pd.CreateAH(verbs.AHAttr{IsGlobal: true, PortNum: 1})
			require.NoError(t, err)
			for _, dest := range []*verbs.UDDest{{}, {AH: ah, RemoteQPN: 5, RemoteQKey: 6}} {
				r.post(r.qp, verbs.SendWR{Opcode: verbs.WRRDMAWrite, SGL: []verbs.SGE{r.sge(0, 8), r.sge(8, 8)},
					RemoteAddr: 1 << 40, RKey: 9, UD: dest})
				p := fakeverbs.LastPosted()[0]
				require.EqualValues(t, 1<<40, p.RemoteAddr)
				require.EqualValues(t, 9, p.RKey)
			}
		})
	}
}
