// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// armed is a QP whose CQ sends its events to a channel.
type armed struct {
	*rig
	ch *verbs.CompChannel
	qp *verbs.QP
}

func newArmed(r *rig) *armed {
	r.Helper()
	ch, err := r.ctx.CreateCompChannel()
	require.NoError(r, err)
	r.cq, err = r.ctx.CreateCQ(verbs.CQConfig{Channel: ch})
	require.NoError(r, err)
	a := &armed{r, ch, r.newQP(verbs.QPConfig{})}
	r.up(a.qp)
	return a
}

func (a *armed) requireEvent() {
	a.Helper()
	cq, err := a.ch.Wait(limited(a))
	require.NoError(a, err)
	require.Same(a, a.cq, cq)
}

func (a *armed) requireNoEvent() {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := a.ch.Wait(ctx)
	require.ErrorIs(a, err, context.DeadlineExceeded)
}

func (a *armed) send(id uint64, flags verbs.SendFlags, status verbs.WCStatus) {
	a.Helper()
	a.post(a.qp, verbs.SendWR{ID: id, Opcode: verbs.WRSend, Flags: flags})
	require.Equal(a, 1, fakeverbs.CompleteSend(a.qp.Num(), 1, uint32(status)))
}

func (a *armed) receive(id uint64) {
	a.Helper()
	_, err := a.qp.PostRecv([]verbs.RecvWR{{ID: id}})
	require.NoError(a, err)
	require.True(a, fakeverbs.Receive(a.qp.Num(), fakeverbs.WC{Opcode: uint32(verbs.WCRecv), Solicited: true}))
}

// armedRigs are devices with and without a ledger.
func armedRigs(t *testing.T, test func(t *testing.T, a *armed)) {
	t.Run("any device", func(t *testing.T) { test(t, newArmed(newRig(t, "fake0"))) })
	t.Run("rxe", func(t *testing.T) { test(t, newArmed(newRXERig(t))) })
	t.Run("siw", func(t *testing.T) { test(t, newArmed(newRig(t, "fake1"))) })
}

// TestArmed: a CQ that is armed makes one event, of a completion that the program sees, and then
// none until it is armed again.
func TestArmed(t *testing.T) {
	armedRigs(t, func(t *testing.T, a *armed) {
		a.send(1, verbs.SendSignaled, 0)
		a.requireNoEvent()
		require.Equal(t, []uint64{1}, wcIDs(a.poll()))
		require.NoError(t, a.cq.ReqNotify(false))
		a.send(2, 0, 0)
		a.requireNoEvent()
		a.send(3, verbs.SendSignaled, 0)
		a.send(4, verbs.SendSignaled, 0)
		a.requireEvent()
		a.requireNoEvent()
		require.Equal(t, []uint64{3, 4}, wcIDs(a.poll()))
		a.receive(5)
		a.requireNoEvent()
		require.NoError(t, a.cq.ReqNotify(false))
		a.receive(6)
		a.requireEvent()
		require.Equal(t, []uint64{5, 6}, wcIDs(a.poll()))
		a.post(a.qp, writes(a.mr, 1)...)
		require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		a.requireNoEvent() // of a flush neither
		require.Len(t, a.poll(), 1)
	})
}

// TestArmedForSolicited: a CQ that is armed for solicited completions makes an event of one, or of
// an error, and none of others. A device may take every receive for solicited.
func TestArmedForSolicited(t *testing.T) {
	armedRigs(t, func(t *testing.T, a *armed) {
		a.send(0, verbs.SendSignaled, 0) // before
		require.Equal(t, []uint64{0}, wcIDs(a.poll()))
		require.NoError(t, a.cq.ReqNotify(true))
		a.send(1, verbs.SendSignaled, 0)
		a.requireNoEvent()
		a.receive(2)
		a.requireEvent()
		require.Equal(t, []uint64{1, 2}, wcIDs(a.poll()))
		require.NoError(t, a.cq.ReqNotify(true))
		require.NoError(t, a.cq.ReqNotify(false))
		a.send(3, verbs.SendSignaled, 0)
		a.requireEvent()
		require.NoError(t, a.cq.ReqNotify(true))
		a.send(4, verbs.SendSignaled, verbs.WCRemAccessErr)
		a.requireEvent()
	})
}

// TestArmedFlush: what the provider flushes itself wakes who has armed the CQ, as what the device
// flushes does.
func TestArmedFlush(t *testing.T) {
	armedRigs(t, func(t *testing.T, a *armed) {
		a.post(a.qp, writes(a.mr, 1)...)
		require.NoError(t, a.cq.ReqNotify(true))
		require.NoError(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		a.requireEvent()
		require.Len(t, a.poll(), 1)
		a.post(a.qp, writes(a.mr, 1)...)
		a.requireNoEvent() // it was armed once
		require.Len(t, a.poll(), 1)
		for _, post := range []func() error{
			func() error { _, err := a.qp.PostSend(writes(a.mr, 1)); return err },
			func() error { _, err := a.qp.PostRecv(make([]verbs.RecvWR, 1)); return err },
		} {
			require.NoError(t, a.cq.ReqNotify(false))
			require.NoError(t, post())
			a.requireEvent()
			require.Len(t, a.poll(), 1)
		}
	})
}

// TestClosedCQForgetsEvents: events of a CQ that has been closed reach nobody, the others of its
// channel do.
func TestClosedCQForgetsEvents(t *testing.T) {
	armedRigs(t, func(t *testing.T, a *armed) {
		first, firstQP := a.cq, a.qp
		other, err := a.ctx.CreateCQ(verbs.CQConfig{Channel: a.ch})
		require.NoError(t, err)
		require.NoError(t, first.ReqNotify(false))
		a.send(1, verbs.SendSignaled, 0)
		require.NoError(t, firstQP.Close()) // an event of the provider's own, if it flushes
		require.NoError(t, first.Close())
		a.requireNoEvent()
		a.cq = other
		a.qp = a.newQP(verbs.QPConfig{})
		a.up(a.qp)
		require.NoError(t, other.ReqNotify(false))
		a.send(2, verbs.SendSignaled, 0)
		a.requireEvent()
	})
}

// TestWaitSolicitedKernel: the device is asked for solicited completions only. One that is not
// solicited does not wake, and comes with the one that does.
func TestWaitSolicitedKernel(t *testing.T) {
	for name, r := range map[string]func(testing.TB) *rig{"Plain": func(t testing.TB) *rig {
		return newRig(t,
			"fake0")
	}, "Ledger": newRXERig} {
		t.Run(name, func(t *testing.T) {
			r := r(t)
			r.up(r.qp)
			_, err := r.qp.PostRecv(make([]verbs.RecvWR, 2))
			require.NoError(t, err)
			type result struct {
				n   int
				err error
			}
			got := make(chan result)
			go func() {
				n, err := r.cq.WaitSolicited(limited(t), make([]verbs.WC, 4))
				got <- result{n, err}
			}()
			asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "eventfd")
			require.EqualValues(t, 1, fakeverbs.Args("ibv_req_notify_cq")[1])
			require.True(t, fakeverbs.Receive(r.qp.Num(), fakeverbs.WC{Opcode: 128}))
			select {
			case r := <-got:
				t.Fatalf("woken by a message that is not solicited: %+v", r)
			case <-time.After(20 * time.Millisecond):
			}
			require.True(t, fakeverbs.Receive(r.qp.Num(), fakeverbs.WC{Opcode: 128, Solicited: true}))
			w := <-got
			require.NoError(t, w.err)
			require.Equal(t, 2, w.n)
		})
	}
}

// TestWaitBesideSolicitedKernel: a Wait that begins while another goroutine sleeps in WaitSolicited
// has the device tell of any completion, and one that came before that is not left in the queue.
func TestWaitBesideSolicitedKernel(t *testing.T) {
	for name, r := range map[string]func(testing.TB) *rig{"Plain": func(t testing.TB) *rig {
		return newRig(t,
			"fake0")
	}, "Ledger": newRXERig} {
		t.Run(name, func(t *testing.T) {
			r := r(t)
			r.up(r.qp)
			_, err := r.qp.PostRecv(make([]verbs.RecvWR, 4))
			require.NoError(t, err)
			receive := func() { require.True(t, fakeverbs.Receive(r.qp.Num(), fakeverbs.WC{Opcode: 128})) }
			got := make(chan error, 2)
			start := func(wait func(context.Context, []verbs.WC) (int, error)) {
				go func() {
					_, err := wait(limited(t), make([]verbs.WC, 1))
					got <- err
				}()
			}
			start(r.cq.WaitSolicited)
			asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "eventfd")
			start(r.cq.Wait)
			asleep.Until(t, 1, "verbs.(*CQ).standBy")
			require.Zero(t, fakeverbs.Args("ibv_req_notify_cq")[1])
			for range 2 { // whoever gets the first
				receive()
				require.NoError(t, <-got)
			}

			start(r.cq.WaitSolicited)
			asleep.Until(t, 1, "verbs.(*CQ).WaitSolicited", "eventfd")
			receive()
			start(r.cq.Wait)
			require.NoError(t, <-got)
			require.True(t, fakeverbs.Receive(r.qp.Num(), fakeverbs.WC{Opcode: 128, Solicited: true}))
			require.NoError(t, <-got)
		})
	}
}

// TestArmedForAnyStays: arming for solicited completions does not undo arming for any.
func TestArmedForAnyStays(t *testing.T) {
	for _, rig := range []func(t testing.TB) *rig{newRXERig, func(t testing.TB) *rig { return newRig(t, "fake1") }} {
		a := newArmed(rig(t))
		require.NoError(t, a.cq.ReqNotify(false))
		require.NoError(t, a.cq.ReqNotify(true))
		a.send(1, verbs.SendSignaled, 0)
		a.requireEvent()
		require.Len(t, a.poll(), 1)
		require.NoError(t, a.cq.ReqNotify(true))
		a.send(2, verbs.SendSignaled, 0)
		a.requireNoEvent()
	}
}
