// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

var channelTests = []test{
	{"Arm", channelArm},
	{"ArmedTooLate", channelArmedTooLate},
	{"Solicited", channelSolicited},
	{"SolicitedError", channelSolicitedError},
	{"AnyBeatsSolicited", channelAnyBeatsSolicited},
	{"SeveralCQs", channelSeveralCQs},
	{"CQWait", channelCQWait},
	{"WaitCancel", channelWaitCancel},
	{"CloseWakesWaiters", channelCloseWakesWaiters},
	{"ClosedCQ", channelClosedCQ},
	{"ClosedOverflowedCQ", channelClosedOverflowedCQ},
}

// event waits for the next event of ch, which must be for cq.
func (h *host) event(ch *verbs.CompChannel, cq *verbs.CQ) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), waitLimit)
	defer cancel()
	got, err := ch.Wait(ctx)
	require.NoError(h, err)
	require.Same(h, cq, got)
}

// noEvent requires that ch has no event.
func (h *host) noEvent(ch *verbs.CompChannel) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), quietTime)
	defer cancel()
	_, err := ch.Wait(ctx)
	requireErr(h.T, err, context.DeadlineExceeded)
}

// drain polls n completions from cq.
func (h *host) drain(cq *verbs.CQ, n int) {
	h.Helper()
	deadline := time.Now().Add(waitLimit)
	var wcs [1]verbs.WC
	for n > 0 {
		k, err := cq.Poll(wcs[:])
		require.NoError(h, err)
		require.False(h, time.Now().After(deadline), "%d completions are missing", n)
		n -= k
		if k == 0 {
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// listening returns a pair whose passive side has a channel for its receive CQ.
func (w *world) listening() (*pair, *verbs.CompChannel) {
	w.Helper()
	ch := w.b.createChannel()
	return w.pair(pairConfig{bChan: [2]*verbs.CompChannel{nil, ch}}), ch
}

// channelArm: arming once delivers one event.
func channelArm(w *world) outcome {
	p, ch := w.listening()
	for i := range 8 {
		p.b.recv(uint64(i))
	}
	send := verbs.SendWR{Opcode: verbs.WRSend}
	p.a.run(send)
	p.b.drain(p.b.rcq, 1)
	p.b.noEvent(ch) // never armed

	require.NoError(w, p.b.rcq.ReqNotify(false))
	p.a.run(send)
	p.b.event(ch, p.b.rcq)
	p.a.run(send)
	p.b.drain(p.b.rcq, 2)
	p.b.noEvent(ch) // the event disarmed it

	require.NoError(w, p.b.rcq.ReqNotify(false))
	require.NoError(w, p.b.rcq.ReqNotify(false))
	p.a.run(send)
	p.a.run(send)
	p.b.event(ch, p.b.rcq)
	p.b.drain(p.b.rcq, 2)
	p.b.noEvent(ch) // arming twice is arming once
	return tested
}

// channelArmedTooLate: completions that are already in the queue generate no event. A program must
// therefore poll after arming.
func channelArmedTooLate(w *world) outcome {
	p, ch := w.listening()
	p.b.recv(1)
	p.b.recv(2)
	p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	p.arrived()
	require.NoError(w, p.b.rcq.ReqNotify(false))
	p.b.noEvent(ch)
	p.b.drain(p.b.rcq, 1)
	p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	p.b.event(ch, p.b.rcq)
	return tested
}

func channelSolicited(w *world) outcome {
	p, ch := w.listening()
	if p.iwarp() && !w.f.userSpace() {
		// Kernel siw generates no solicited events for receives. A CQ armed for any completion must
		// get one.
		p.b.recv(1)
		require.NoError(w, p.b.rcq.ReqNotify(false))
		p.a.run(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSolicited})
		p.b.event(ch, p.b.rcq)
		w.without("solicited-event")
		return noted
	}
	for _, c := range []struct {
		name string
		op   verbs.Op
		wr   verbs.SendWR
	}{
		{"Send", verbs.OpSend, verbs.SendWR{Opcode: verbs.WRSend}},
		{"LongSend", verbs.OpSend, verbs.SendWR{Opcode: verbs.WRSend, SGL: p.a.mem.sgl(0, 3000)}},
		{"SendImm", verbs.OpSendImm, verbs.SendWR{Opcode: verbs.WRSendWithImm}},
		{"WriteImm", verbs.OpWriteImm, verbs.SendWR{Opcode: verbs.WRRDMAWriteWithImm}},
		{"ImmData", verbs.OpImm64, verbs.SendWR{Opcode: verbs.WRImmData}},
	} {
		w.sub(c.name, func(w *world) outcome {
			wr := c.wr
			if !w.has(c.op) {
				p.in(w).a.refused(verbs.ErrNotSupported, wr)
				return noted
			}
			p := p.in(w)
			for range 3 {
				p.b.recv(1, p.b.mem.sge(0, 3000))
			}
			require.NoError(w, p.b.rcq.ReqNotify(true))
			p.a.run(wr)
			p.b.noEvent(ch)
			p.b.drain(p.b.rcq, 1)
			solicited := wr
			solicited.Flags = verbs.SendSolicited
			p.a.run(solicited)
			p.b.event(ch, p.b.rcq)
			p.a.run(solicited)
			p.b.drain(p.b.rcq, 2)
			p.b.noEvent(ch) // disarmed
			return tested
		})
	}
	if w.has(verbs.OpSendInv) && !w.noWindows() {
		for _, flags := range []verbs.SendFlags{0, verbs.SendSolicited} {
			mw := p.window(p.b.mem, 0, 8, windowRights)
			p.b.recv(1)
			require.NoError(w, p.b.rcq.ReqNotify(true))
			p.a.run(verbs.SendWR{Opcode: verbs.WRSendWithInv, Flags: flags, InvalidateRKey: mw.RKey()})
			if flags == 0 {
				p.b.noEvent(ch)
			} else {
				p.b.event(ch, p.b.rcq)
			}
			p.b.drain(p.b.rcq, 1)
		}
	}
	return tested
}

// channelSolicitedError: a failed completion counts as solicited.
func channelSolicitedError(w *world) outcome {
	p, ch := w.listening()
	p.b.recv(1)
	require.NoError(w, p.b.rcq.ReqNotify(true))
	p.b.noEvent(ch)
	require.NoError(w, p.b.id.Disconnect())
	p.b.event(ch, p.b.rcq)
	var wcs [1]verbs.WC
	n, err := p.b.rcq.Poll(wcs[:])
	require.NoError(w, err)
	require.Equal(w, 1, n)
	require.Equal(w, verbs.WCWRFlushErr, wcs[0].Status)
	return tested
}

// channelAnyBeatsSolicited: arming for solicited completions does not undo arming for any
// completion.
func channelAnyBeatsSolicited(w *world) outcome {
	p, ch := w.listening()
	p.b.recv(1)
	p.b.recv(2)
	require.NoError(w, p.b.rcq.ReqNotify(false))
	require.NoError(w, p.b.rcq.ReqNotify(true))
	p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	p.b.event(ch, p.b.rcq)
	require.NoError(w, p.b.rcq.ReqNotify(true))
	require.NoError(w, p.b.rcq.ReqNotify(false))
	p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	p.b.event(ch, p.b.rcq)
	return tested
}

// channelSeveralCQs: one channel delivers the events of several CQs and identifies the CQ of each.
func channelSeveralCQs(w *world) outcome {
	ch := w.b.createChannel()
	shared := pairConfig{bChan: [2]*verbs.CompChannel{ch, ch}}
	pairs := []*pair{w.pair(shared), w.pair(shared), w.pair(shared)}
	want := make(map[*verbs.CQ]bool)
	for _, p := range pairs {
		p.b.recv(1)
		require.NoError(w, p.b.rcq.ReqNotify(false))
		require.NoError(w, p.b.scq.ReqNotify(false))
		want[p.b.rcq] = true
	}
	for _, p := range pairs {
		p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	}
	ctx, cancel := context.WithTimeout(w.Context(), waitLimit)
	defer cancel()
	for range pairs {
		cq, err := ch.Wait(ctx)
		require.NoError(w, err)
		require.True(w, want[cq], "an event of a CQ without a new completion, or a second one")
		delete(want, cq)
		w.b.drain(cq, 1)
	}
	w.b.noEvent(ch)
	// The send CQ's event identifies the send CQ.
	pairs[1].b.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled})
	w.b.event(ch, pairs[1].b.scq)
	return tested
}

// channelCQWait: Wait fails on a CQ whose channel belongs to the caller.
func channelCQWait(w *world) outcome {
	ch := w.a.createChannel()
	cq := w.a.createCQ(verbs.CQConfig{Channel: ch})
	var wcs [1]verbs.WC
	_, err := cq.Wait(w.Context(), wcs[:])
	requireErr(w.T, err, verbs.ErrSharedChannel)
	n, err := cq.Poll(wcs[:])
	require.NoError(w, err)
	require.Zero(w, n)
	return tested
}

func channelWaitCancel(w *world) outcome {
	ch := w.a.createChannel()
	w.a.noEvent(ch)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := ch.Wait(ctx)
		done <- err
	}()
	asleep.Until(w.T, 1, "verbs.(*CompChannel).Wait", "verbstest.channelWaitCancel")
	cancel()
	requireErr(w.T, closes(w.T, done, "a cancelled Wait"), context.Canceled)
	return tested
}

func channelCloseWakesWaiters(w *world) outcome {
	ch, err := w.a.ctx.CreateCompChannel()
	require.NoError(w, err)
	const waiters = 3
	ends := make(chan error, waiters)
	for range waiters {
		go func() {
			_, err := ch.Wait(context.Background())
			ends <- err
		}()
	}
	asleep.Until(w.T, waiters, "verbs.(*CompChannel).Wait", "verbstest.channelCloseWakesWaiters")
	require.NoError(w, ch.Close())
	for range waiters {
		requireClosed(w.T, closes(w.T, ends, "a waiter of a closed channel"))
	}
	_, err = ch.Wait(context.Background())
	requireClosed(w.T, err)
	return tested
}

// channelClosedCQ: an event is dropped if its CQ is closed before the event is read.
func channelClosedCQ(w *world) outcome {
	p, ch := w.listening()
	p.b.recv(1)
	require.NoError(w, p.b.rcq.ReqNotify(false))
	p.a.run(verbs.SendWR{Opcode: verbs.WRSend})
	p.arrived()
	require.NoError(w, p.b.id.Close())
	require.NoError(w, p.b.qp.Close())
	require.NoError(w, p.b.rcq.Close())
	p.b.noEvent(ch)
	return tested
}

// channelClosedOverflowedCQ: so is an event of a CQ that lost completions.
func channelClosedOverflowedCQ(w *world) outcome {
	ch := w.b.createChannel()
	for range 20 {
		cq := w.b.createCQ(verbs.CQConfig{CQE: 1, Channel: ch})
		n := cq.CQE() + 1
		qp := w.b.createQP(w.b.pd, verbs.QPConfig{SendCQ: cq, RecvCQ: cq, Cap: verbs.QPCap{MaxRecvWR: n}})
		s := &side{host: w.b, qp: qp}
		bindINIT(s)
		for i := range n {
			s.recv(uint64(i))
		}
		require.NoError(w, s.modify(verbs.QPStateErr))
		require.NoError(w, qp.Close())
		require.NoError(w, cq.Close())
	}
	w.b.noEvent(ch)
	return tested
}
