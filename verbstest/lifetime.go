// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/verbs"
)

var lifetimeTests = []test{
	{"Busy", lifetimeBusy},
	{"Closed", lifetimeClosed},
	{"ClosedParent", lifetimeClosedParent},
	{"CloseTwice", lifetimeCloseTwice},
	{"CloseNil", lifetimeCloseNil},
	{"CloseAll", lifetimeCloseAll},
	{"CloseConcurrent", lifetimeCloseConcurrent},
	{"CloseDuringPost", lifetimeCloseDuringPost},
	{"CloseDuringCQ", lifetimeCloseDuringCQ},
	{"MRCloseUnderTraffic", lifetimeMRCloseUnderTraffic},
	{"MRCloseUnderReads", lifetimeMRCloseUnderReads},
	{"MRCloseOfSource", lifetimeMRCloseOfSource},
	{"MRCloseOfSink", lifetimeMRCloseOfSink},
	{"ErrClosed", lifetimeErrClosed},
}

// lifetimeBusy: a parent with children cannot be closed. The error gives the number of children of
// each kind, and everything still works.
func lifetimeBusy(w *world) outcome {
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	ch, err := c.CreateCompChannel()
	require.NoError(w, err)
	scq, err := c.CreateCQ(verbs.CQConfig{Channel: ch})
	require.NoError(w, err)
	rcq, err := c.CreateCQ(verbs.CQConfig{})
	require.NoError(w, err)
	pd, err := c.AllocPD()
	require.NoError(w, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: scq, RecvCQ: rcq})
	require.NoError(w, err)
	one, err := pd.AllocMR(8, 0)
	require.NoError(w, err)
	two, err := pd.RegMR(make([]byte, 8), 0)
	require.NoError(w, err)

	busy := func(err error, children ...string) {
		w.Helper()
		requireErr(w.T, err, verbs.ErrBusy)
		for _, s := range children {
			require.ErrorContains(w, err, s)
		}
	}
	busy(c.Close(), "1 CompChannel", "2 CQ", "1 PD")
	busy(ch.Close(), "1 CQ")
	busy(scq.Close(), "1 QP")
	busy(rcq.Close(), "1 QP")
	busy(pd.Close(), "2 MR", "1 QP")
	if w.has(verbs.OpBindMW) {
		mw, err := pd.AllocMW(verbs.MWType2)
		require.NoError(w, err)
		busy(pd.Close(), "1 MW", "2 MR", "1 QP")
		require.NoError(w, mw.Close())
	}
	_, err = c.QueryDevice()
	require.NoError(w, err, "a refused Close changes nothing")
	_, err = qp.Query()
	require.NoError(w, err)
	require.NoError(w, one.Close())
	busy(pd.Close(), "1 MR", "1 QP")
	require.NoError(w, qp.Close())
	busy(pd.Close(), "1 MR")
	require.NoError(w, two.Close())
	require.NoError(w, pd.Close())
	require.NoError(w, rcq.Close())
	busy(ch.Close(), "1 CQ")
	require.NoError(w, scq.Close())
	busy(c.Close(), "1 CompChannel")
	require.NoError(w, ch.Close())
	require.NoError(w, c.Close())
	return tested
}

// lifetimeClosed calls every method that can fail on closed handles.
func lifetimeClosed(w *world) outcome {
	p := w.pair(pairConfig{})
	mr, every := w.a.alloc(8, allRights), w.requests(p.a, p.b)
	require.NoError(w, p.a.id.Close())
	require.NoError(w, p.a.qp.Close())
	qp := p.a.qp
	calls := map[string]error{}
	for i := range every {
		_, calls["QP.PostSend of "+every[i].Opcode.String()] = qp.PostSend(every[i : i+1])
	}
	_, calls["QP.PostRecv"] = qp.PostRecv([]verbs.RecvWR{{}})
	_, calls["QP.PostSend of nothing"] = qp.PostSend(nil)
	calls["QP.Modify"] = qp.Modify(verbs.QPAttr{}, verbs.QPAttrState)
	_, calls["QP.Query"] = qp.Query()
	calls["QP.Drain"] = qp.Drain(w.Context())
	require.NotZero(w, qp.Num(), "what does not ask the device still answers")

	cq := w.a.createCQ(verbs.CQConfig{})
	require.NoError(w, cq.Close())
	var wcs [1]verbs.WC
	_, calls["CQ.Poll"] = cq.Poll(wcs[:])
	_, calls["CQ.Wait"] = cq.Wait(w.Context(), wcs[:])
	calls["CQ.ReqNotify"] = cq.ReqNotify(false)

	ch := w.a.createChannel()
	require.NoError(w, ch.Close())
	_, calls["CompChannel.Wait"] = ch.Wait(w.Context())

	pd := w.a.allocPD()
	require.NoError(w, pd.Close())
	_, calls["AllocMR"] = pd.AllocMR(8, 0)
	_, calls["RegMR"] = pd.RegMR(make([]byte, 8), 0)
	_, calls["RegMRIova"] = pd.RegMRIova(make([]byte, 8), 8, 0)
	_, calls["AllocMW"] = pd.AllocMW(verbs.MWType2)
	_, calls["CreateQP"] = pd.CreateQP(verbs.QPConfig{SendCQ: p.a.scq, RecvCQ: p.a.rcq})

	c, err := w.f.Active.Open()
	require.NoError(w, err)
	require.NoError(w, c.Close())
	_, calls["QueryDevice"] = c.QueryDevice()
	_, calls["QueryPort"] = c.QueryPort(1)
	_, calls["AllocPD"] = c.AllocPD()
	_, calls["CreateCQ"] = c.CreateCQ(verbs.CQConfig{})
	_, calls["CreateCompChannel"] = c.CreateCompChannel()
	_, calls["WaitEvent"] = c.WaitEvent(w.Context())

	for name, err := range calls {
		require.ErrorIs(w, err, verbs.ErrClosed, name)
		requireClosed(w.T, err)
		var oe *verbs.OpError
		require.ErrorAs(w, err, &oe, name)
		require.Equal(w, w.f.Active.Name(), oe.Device, name)
	}

	// A closed region has no keys, but its address and length can still be read.
	require.NoError(w, mr.Close())
	require.Equal(w, 8, mr.Len())
	return tested
}

// lifetimeClosedParent: nothing can be created with a closed parent or argument.
func lifetimeClosedParent(w *world) outcome {
	cq, closed := w.a.createCQ(verbs.CQConfig{}), w.a.createCQ(verbs.CQConfig{})
	require.NoError(w, closed.Close())
	for _, cfg := range []verbs.QPConfig{{SendCQ: closed, RecvCQ: cq}, {SendCQ: cq, RecvCQ: closed}} {
		_, err := w.a.pd.CreateQP(cfg)
		requireClosed(w.T, err)
	}
	ch := w.a.createChannel()
	require.NoError(w, ch.Close())
	_, err := w.a.ctx.CreateCQ(verbs.CQConfig{Channel: ch})
	requireClosed(w.T, err)

	s := w.a.side(pairConfig{}, nil, [2]*verbs.CompChannel{})
	require.NoError(w, s.qp.Close())
	requireClosed(w.T, w.resolve(w.ln).Connect(within(w.T), s.qp, cm.ConnParam{}))
	return tested
}

func lifetimeCloseTwice(w *world) outcome {
	p := w.pair(pairConfig{})
	ln := w.listen(cm.Config{Context: w.b.ctx})
	ch := w.a.createChannel()
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	pd, err := c.AllocPD()
	require.NoError(w, err)
	mw := func() error { return nil }
	if w.has(verbs.OpBindMW) {
		mw = p.a.allocMW().Close
	}
	for i, closeIt := range []func() error{ln.Close, p.a.id.Close, p.b.id.Close, p.a.qp.Close, mw, p.a.mem.Close,
		p.a.scq.Close, p.a.rcq.Close, ch.Close, pd.Close, c.Close, c.CloseAll} {
		for range 3 {
			require.NoError(w, closeIt(), "object %d", i)
		}
	}
	return tested
}

func lifetimeCloseNil(w *world) outcome {
	for i, closeIt := range []func() error{(*verbs.Context)(nil).Close, (*verbs.Context)(nil).CloseAll,
		(*verbs.PD)(nil).Close, (*verbs.MR)(nil).Close, (*verbs.MW)(nil).Close, (*verbs.CQ)(nil).Close,
		(*verbs.CompChannel)(nil).Close, (*verbs.QP)(nil).Close,
		(*cm.ID)(nil).Close, (*cm.Listener)(nil).Close} {
		require.NoError(w, closeIt(), "object %d", i)
	}
	return tested
}

// lifetimeCloseAll closes a context in use with all its objects. The peer's connection ends.
func lifetimeCloseAll(w *world) outcome {
	c, err := w.f.Active.Open()
	require.NoError(w, err)
	inner := *w
	inner.a = &host{T: w.T, ctx: c, attr: w.a.attr}
	inner.a.pd, err = c.AllocPD()
	require.NoError(w, err)
	ch, err := c.CreateCompChannel()
	require.NoError(w, err)
	p := inner.pair(pairConfig{aChan: [2]*verbs.CompChannel{ch, nil}, cold: true})
	p.b.recv(1)
	p.a.recv(2)
	waiting := make(chan error, 1)
	go func() {
		_, err := c.WaitEvent(context.Background())
		waiting <- err
	}()
	asleep.Until(w.T, 1, "verbs.(*Context).WaitEvent", "verbstest.lifetimeCloseAll")
	require.NoError(w, c.CloseAll())
	requireClosed(w.T, closes(w.T, waiting, "WaitEvent of a closed context"))
	for _, err := range []error{inner.a.pd.Close(), p.a.qp.Close(), p.a.scq.Close(), p.a.mem.Close(), ch.Close(),
		c.Close()} {
		require.NoError(w, err, "everything is closed")
	}
	_, err = c.AllocPD()
	requireClosed(w.T, err)
	closes(w.T, p.b.id.Done(), "the end of the connection at the peer")
	p.b.flushed(p.b.rcq, 1)
	require.NoError(w, (*verbs.Context)(nil).CloseAll())
	return tested
}

// lifetimeCloseConcurrent: of several concurrent calls of Close, one closes the object, and all
// return without error.
func lifetimeCloseConcurrent(w *world) outcome {
	p := w.pair(pairConfig{})
	for _, closeIt := range []func() error{p.a.id.Close, p.a.qp.Close, p.a.mem.Close, p.a.scq.Close} {
		const closers = 4
		errs := make(chan error, closers)
		for range closers {
			go func() { errs <- closeIt() }()
		}
		for range closers {
			require.NoError(w, closes(w.T, errs, "a closer"))
		}
	}
	return tested
}

// untilClosed calls f until it fails and delivers the error. It continues if a queue is full.
func untilClosed(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		for {
			err := f()
			switch {
			case err == nil:
			case errors.Is(err, verbs.ErrQueueFull):
				time.Sleep(50 * time.Microsecond)
			default:
				done <- err
				return
			}
		}
	}()
	return done
}

// lifetimeCloseDuringPost closes a QP while goroutines post and poll.
func lifetimeCloseDuringPost(w *world) outcome {
	by := w.pair(pairConfig{})
	for range 5 {
		p := w.pair(pairConfig{cqe: 4096})
		put, get := write(p.a.mem.sgl(0, 1000), p.b.mem, 0), read(p.a.mem.sgl(1000, 1000), p.b.mem, 0)
		ends := map[string]<-chan error{
			"PostSend": untilClosed(func() error {
				_, err := p.a.qp.PostSend([]verbs.SendWR{put})
				return err
			}),
			"Read": untilClosed(func() error {
				_, err := p.a.qp.PostSend([]verbs.SendWR{get})
				return err
			}),
			"PostRecv": untilClosed(func() error {
				_, err := p.a.qp.PostRecv([]verbs.RecvWR{{}})
				return err
			}),
			"Query": untilClosed(func() error {
				_, err := p.a.qp.Query()
				time.Sleep(10 * time.Microsecond)
				return err
			}),
		}
		time.Sleep(2 * time.Millisecond)
		require.NoError(w, p.a.qp.Close())
		for name, end := range ends {
			err := closes(w.T, end, name)
			require.ErrorIs(w, err, verbs.ErrClosed, name)
		}
		closes(w.T, p.b.id.Done(), "the end of the connection at the peer")
	}
	by.works()
	return tested
}

// lifetimeCloseDuringCQ closes a CQ while goroutines wait, poll and arm.
func lifetimeCloseDuringCQ(w *world) outcome {
	for range 5 {
		cq, err := w.a.ctx.CreateCQ(verbs.CQConfig{})
		require.NoError(w, err)
		ends := map[string]<-chan error{
			"Wait": untilClosed(func() error {
				var wcs [1]verbs.WC
				_, err := cq.Wait(context.Background(), wcs[:])
				return err
			}),
			"Poll": untilClosed(func() error {
				var wcs [1]verbs.WC
				_, err := cq.Poll(wcs[:])
				time.Sleep(10 * time.Microsecond)
				return err
			}),
			"ReqNotify": untilClosed(func() error {
				time.Sleep(10 * time.Microsecond)
				return cq.ReqNotify(false)
			}),
		}
		time.Sleep(time.Millisecond)
		require.NoError(w, cq.Close())
		for name, end := range ends {
			requireClosed(w.T, closes(w.T, end, name))
		}
	}
	return tested
}

// lifetimeMRCloseUnderTraffic deregisters a region while the peer is writing to it: nothing may be
// written after Close. A late Write would write the last bytes last, so these are cleared first.
func lifetimeMRCloseUnderTraffic(w *world) outcome {
	by := w.pair(pairConfig{})
	const n, rounds = 60_000, 40
	src := w.a.alloc(n, 0)
	src.fill(9)
	for round := range rounds {
		p := w.pair(pairConfig{cqe: min(10_000, w.a.attr.MaxCQE)})
		buf := make([]byte, n)
		m := p.b.register(buf, allRights)
		put := []verbs.SendWR{write(src.sgl(0, n), m, 0)}
		posted := make(chan error, 1)
		go func() {
			for {
				select {
				case <-p.a.id.Done():
					posted <- nil
					return
				default:
				}
				_, err := p.a.qp.PostSend(put)
				switch {
				case errors.Is(err, verbs.ErrQueueFull):
					time.Sleep(20 * time.Microsecond)
				case err != nil:
					posted <- err
					return
				}
			}
		}()
		time.Sleep(time.Duration(round%8) * 100 * time.Microsecond)
		require.NoError(w, m.Close())
		clear(buf[n-64:])
		clear(buf)
		closes(w.T, p.b.id.Done(), "the end of the connection")
		require.NoError(w, closes(w.T, posted, "the poster"))
		if w.siwBelow(w.f.Passive) {
			w.without("dereg-waits") // kernel siw finishes placing a message that it has begun to place
			continue
		}
		requireSame(w.T, make([]byte, n), buf)
	}
	by.works()
	return tested
}

// lifetimeMRCloseOfSource deregisters memory that is queued for sending: each request completes or
// fails, and nothing that the program writes to the memory afterwards is sent. Kernel siw still
// finishes the one request that it has begun to send.
func lifetimeMRCloseOfSource(w *world) outcome {
	allowed := []verbs.WCStatus{verbs.WCLocProtErr, verbs.WCWRFlushErr}
	if !w.f.userSpace() {
		// kernel siw reports this for every request that it cannot execute
		allowed = append(allowed, verbs.WCLocQPOpErr)
	}
	const n, count = 100_000, 40
	for round := range 4 {
		p := w.pair(pairConfig{})
		dst := w.b.alloc(n*count, allRights)
		dst.fill(1)
		initial := bytes.Clone(dst.Bytes())
		buf := bytes.Clone(pattern(2, n))
		src := w.a.register(buf, 0)
		copy(buf, pattern(2, n))
		for i := range count {
			wr := write(src.sgl(0, n), dst, i*n)
			wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
			p.a.post(wr)
		}
		time.Sleep(time.Duration(round) * 200 * time.Microsecond)
		require.NoError(w, src.Close())
		clear(buf)
		if p.a.sentUntilFailure(count, allowed...) < count {
			p.disconnected()
		} else {
			p.settle()
		}
		want, begun := pattern(2, n), -1
		for i := range count {
			before, after := initial[i*n:(i+1)*n], dst.Bytes()[i*n:(i+1)*n]
			if bytes.Equal(after, want) || bytes.Equal(after, before) {
				continue
			}
			for k, got := range after { // partially placed
				if got != want[k] && got != before[k] {
					if got == 0 && (begun < 0 || begun == i) && w.siwBelow(w.f.Active) {
						begun = i
						continue
					}
					require.Failf(w, "what was in the memory after Close was sent", "byte %d of request %d is %#x", k,
						i, got)
				}
			}
		}
	}
	return tested
}

// sentUntilFailure polls the completions of count requests with the IDs 0, 1, 2 and so on. It
// requires that after the first failure all fail, with one of the given statuses, and returns how
// many succeeded.
func (s *side) sentUntilFailure(count int, allowed ...verbs.WCStatus) (good int) {
	s.Helper()
	for i := range count {
		wc := s.sent()
		require.EqualValues(s, i, wc.ID)
		if wc.Status == verbs.WCSuccess {
			require.Equal(s, i, good, "a success behind a failure")
			good++
			continue
		}
		require.Contains(s, allowed, wc.Status, wc.Status.String())
	}
	return good
}

// lifetimeMRCloseUnderReads deregisters a region while the peer is reading it: data read before
// that is correct, and the other Reads fail.
func lifetimeMRCloseUnderReads(w *world) outcome {
	for round, after := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
		w.sub(fmt.Sprint(round), func(w *world) outcome {
			p := w.pair(pairConfig{})
			const n, count = 100_000, 30
			m := p.b.alloc(n, allRights)
			want := bytes.Clone(m.Bytes())
			dst := p.a.alloc(n*count, verbs.AccessLocalWrite)
			for i := range count {
				wr := read(dst.sgl(i*n, n), m, 0)
				wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
				p.a.post(wr)
			}
			time.Sleep(after)
			require.NoError(w, m.Close())
			allowed := []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCRemOpErr, verbs.WCWRFlushErr}
			good := p.a.sentUntilFailure(count, allowed...)
			for i := range good {
				dst.holds(i*n, want)
			}
			if good == count { // all completed first: the next one fails
				wr := read(dst.sgl(0, 8), m, 0)
				if wc := p.a.run(wr); w.kernelIWARP() { // as above
					require.Contains(w, allowed, wc.Status, wc.Status.String())
				} else {
					p.refusal(wc, fault{status: verbs.WCRemAccessErr}, false)
				}
			}
			p.disconnected()
			return tested
		})
	}
	return tested
}

// lifetimeMRCloseOfSink deregisters the sink of Reads or atomics in progress: nothing is placed in
// it afterwards.
func lifetimeMRCloseOfSink(w *world) outcome {
	for _, c := range []struct {
		op verbs.Op
		wr verbs.SendWR
		n  int
	}{
		{verbs.OpRead, verbs.SendWR{Opcode: verbs.WRRDMARead}, 100_000},
		{verbs.OpFetchAdd, verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Add: 1}, 8},
	} {
		w.sub(c.op.String(), func(w *world) outcome {
			if !w.has(c.op) {
				p := w.pair(pairConfig{})
				p.a.refused(verbs.ErrNotSupported, at(c.wr, p.a.mem, 0, p.b.mem, 0))
				return noted
			}
			const count, rounds = 60, 8
			for round := range rounds {
				p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: 1}})
				src := p.b.alloc(c.n, allRights)
				buf := make([]byte, c.n)
				dst := p.a.register(buf, verbs.AccessLocalWrite)
				for i := range count {
					wr := c.wr
					wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
					wr.SGL, wr.RemoteAddr, wr.RKey = dst.sgl(0, c.n), src.at(0), src.RKey()
					p.a.post(wr)
				}
				time.Sleep(time.Duration(round) * 50 * time.Microsecond)
				require.NoError(w, dst.Close())
				clear(buf)
				if p.a.sentUntilFailure(count, verbs.WCLocProtErr, verbs.WCWRFlushErr) < count {
					p.disconnected()
				}
				if w.siwBelow(w.f.Active) && c.wr.Opcode == verbs.WRRDMARead {
					w.without("dereg-waits")
					continue
				}
				requireSame(w.T, make([]byte, c.n), buf)
			}
			return tested
		})
	}
	return tested
}

func lifetimeErrClosed(w *world) outcome {
	cq := w.a.createCQ(verbs.CQConfig{})
	require.NoError(w, cq.Close())
	_, err := cq.Poll(nil)
	require.ErrorIs(w, err, verbs.ErrClosed)
	require.ErrorIs(w, err, net.ErrClosed)
	require.ErrorIs(w, err, os.ErrClosed)
	require.NotErrorIs(w, err, verbs.ErrBusy)
	return tested
}
