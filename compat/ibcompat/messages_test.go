// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/asleep"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// metered is an RNIC that counts its QPs' messages, that is, Sends.
type metered struct {
	verbs.ProviderDevice
	messages *atomic.Int64
}

func (d metered) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d metered) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	c, err := d.ProviderDevice.Open(owner)
	return meteredContext{c, d.messages}, err
}

type meteredContext struct {
	verbs.ProviderContext
	messages *atomic.Int64
}

func (c meteredContext) Unwrap() verbs.ProviderContext { return c.ProviderContext }

func (c meteredContext) AllocPD() (verbs.ProviderPD, error) {
	p, err := c.ProviderContext.AllocPD()
	return meteredPD{p, c.messages}, err
}

type meteredPD struct {
	verbs.ProviderPD
	messages *atomic.Int64
}

func (p meteredPD) Unwrap() verbs.ProviderPD { return p.ProviderPD }

func (p meteredPD) CreateQP(owner *verbs.QP, cfg verbs.ProviderQPConfig) (verbs.ProviderQP, verbs.QPCap, error) {
	q, c, err := p.ProviderPD.CreateQP(owner, cfg)
	return meteredQP{q, p.messages}, c, err
}

type meteredQP struct {
	verbs.ProviderQP
	messages *atomic.Int64
}

func (q meteredQP) Unwrap() verbs.ProviderQP { return q.ProviderQP }

func (q meteredQP) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		if wrs[i].Opcode == verbs.WRSend {
			q.messages.Add(1)
		}
	}
	return q.ProviderQP.PostSend(wrs)
}

// newMetered returns a wrapped RNIC of this kind, and its counter.
func newMetered(t testing.TB, without verbs.OpSet) (*verbs.Context, *atomic.Int64) {
	t.Helper()
	nic, err := usiw.New(usiw.Config{Without: without})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	messages := new(atomic.Int64)
	in := verbs.NewDevice(metered{forward.Wrap(nic.Device()).Provider(), messages})
	t.Cleanup(func() { require.NoError(t, in.CloseShared()) })
	dev, err := ibcompat.Wrap(in, ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return open(t, dev), messages
}

// TestConfirmationMessages checks that confirming a list to a peer that sends nothing takes at most
// one message and its acknowledgement. A list that ends with a message carries the request in it;
// one that ends with a Read or an atomic is confirmed by the response.
func TestConfirmationMessages(t *testing.T) {
	for _, c := range []struct {
		name    string
		without verbs.OpSet
	}{{"full", 0}, {"plain", ext.Operations}} {
		for _, l := range []struct {
			name              string
			list              func(a, b *end) []verbs.SendWR
			messages          int64 // of the list itself
			plain             int64 // additional ones without RFC 7306
			asked, answered   int64
			plainAsks, silent int64 // asked and answered without RFC 7306
		}{
			{name: "Sends", list: func(a, b *end) []verbs.SendWR { return repeat(8, verbs.Send(a.sgl(0, 8)...)) },
				messages: 8, answered: 1, silent: 1},
			{name: "Writes", list: func(a, b *end) []verbs.SendWR {
				return repeat(8,
					verbs.Write(b.there(), a.sgl(0, 8)...))
			}, asked: 1, answered: 1, plainAsks: 1, silent: 1},
			{name: "Writes with immediate",
				list: func(a, b *end) []verbs.SendWR {
					return repeat(8,
						verbs.WriteImm(b.there(), 1, a.sgl(0, 8)...))
				},
				plain: 8, asked: 1, answered: 1, silent: 1},
			{name: "a Send between Writes", list: func(a, b *end) []verbs.SendWR {
				w := verbs.Write(b.there(), a.sgl(0, 8)...)
				return []verbs.SendWR{w, verbs.Send(a.sgl(0, 8)...), w}
			}, messages: 1, asked: 1, answered: 1, plainAsks: 1, silent: 1},
			{name: "a Send before a Read", list: func(a, b *end) []verbs.SendWR {
				return []verbs.SendWR{verbs.Send(a.sgl(0, 8)...), verbs.Read(b.there(), a.sgl(8, 8)...)}
			}, messages: 1, asked: 1, answered: 1, plainAsks: 1, silent: 1},
			{name: "Writes before a Read", list: func(a, b *end) []verbs.SendWR {
				return append(repeat(4, verbs.Write(b.there(), a.sgl(0, 8)...)), verbs.Read(b.there(), a.sgl(8, 8)...))
			}},
			{name: "Writes before an atomic", list: func(a, b *end) []verbs.SendWR {
				return append(repeat(4, verbs.Write(b.there(), a.sgl(0, 8)...)),
					a.on(ext.FetchAddWR(verbs.Remote{Length: 8}, 1), 72, b, 1024))
			}, plain: 1, silent: 1},
		} {
			t.Run(c.name+"/"+l.name, func(t *testing.T) {
				one, sent := newMetered(t, c.without)
				two, back := newMetered(t, c.without)
				a, b := connect(t, one, two, verbs.QPConfig{})
				for range 64 {
					b.recv(0)
				}
				wantSent, wantBack := l.messages+l.asked, l.answered
				if c.without != 0 {
					wantSent, wantBack = l.messages+l.plain+l.plainAsks, l.silent
				}
				// There are initial messages about receives too, and on a busy machine a delayed
				// acknowledgement can be sent before it is requested.
				want := [2]int64{wantSent, wantBack}
				var seen [][2]int64
				for range 8 {
					before := [2]int64{sent.Load(), back.Load()}
					list := l.list(a, b)
					a.post(list...)
					for range list {
						require.NoError(t, func() error { wc := a.wait(); return wc.Err() }())
					}
					seen = append(seen, [2]int64{sent.Load() - before[0], back.Load() - before[1]})
				}
				require.Contains(t, seen, want, "messages in either direction")
			})
		}
	}
}

// there returns the start of the end's memory, for the peer.
func (e *end) there() verbs.Remote {
	return verbs.Remote{Addr: e.mr.Addr() + 1024, Length: 1 << 30, RKey: e.mr.RKey()}
}

func repeat(n int, wr verbs.SendWR) []verbs.SendWR {
	list := make([]verbs.SendWR, n)
	for i := range list {
		list[i] = wr
	}
	return list
}

// asks sends a message of the program with FlagAsk, and adverts of a receive.
func (r *raw) asks(adverts uint64) {
	h := wire.Header{Kind: wire.Data, Flags: wire.FlagAsk, Taken: r.taken, Adverts: 1, First: adverts}
	r.say((&wire.Advert{Total: 64}).Append(message(h)))
}

// polls polls a completion.
func (e *end) polls() verbs.WC {
	e.Helper()
	var wcs [1]verbs.WC
	for ctx := soon(e); ctx.Err() == nil; {
		n, err := e.cq.Poll(wcs[:])
		require.NoError(e, err)
		if n == 1 {
			return wcs[0]
		}
		runtime.Gosched()
	}
	require.FailNow(e, "no completion")
	return verbs.WC{}
}

// TestAnswerWaits checks that while the program polls, an acknowledgement requested by a message is
// delayed until the program acts: it is carried by the program's own message, or with adverts of
// its receives. It is sent earlier if the program takes too long, so each case is repeated until it
// is observed.
func TestAnswerWaits(t *testing.T) {
	const messages = 12 // each has a receive, however slow the program is
	for _, c := range []struct {
		name  string
		sends bool // the program answers a message with one, not only with a receive
		kind  wire.Kind
		holds func(h wire.Header) bool
	}{
		{"sends", true, wire.Data, func(h wire.Header) bool { return h.Flags&wire.FlagAck != 0 }},
		{"posts a receive", false, wire.Ack, func(h wire.Header) bool { return h.Adverts == 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			try := func() bool {
				r, b := newRaw(t, ext.Operations, ibcompat.Config{}, messages)
				r.greets()
				r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken}))
				receives, sends := []verbs.RecvWR{{SGL: b.sgl(2048, 64)}},
					[]verbs.SendWR{{Opcode: verbs.WRSend, SGL: b.sgl(0, 8)}}
				var over atomic.Bool
				var program sync.WaitGroup
				program.Go(func() {
					var wcs [1]verbs.WC
					for !over.Load() {
						if n, _ := b.cq.Poll(wcs[:]); n == 0 || !wcs[0].IsRecv() {
							runtime.Gosched()
							continue
						}
						if _, err := b.qp.PostRecv(receives); err != nil {
							return
						}
						if c.sends {
							_, _ = b.qp.PostSend(sends)
						}
					}
				})
				defer program.Wait()
				defer over.Store(true)
				for i := range uint64(messages) { // the first ones may meet the pump's own goroutine at work
					r.asks(i)
					if h, _ := r.hears(c.kind); c.holds(h) {
						return true
					}
				}
				return false
			}
			for range 100 {
				if try() {
					return
				}
			}
			require.FailNow(t, "the answer has never waited")
		})
	}
}

// TestAnswerComes checks that the acknowledgement requested by a message is sent even if the
// program that received it does nothing more, or sleeps.
func TestAnswerComes(t *testing.T) {
	for _, c := range []struct {
		name string
		take func(e *end) verbs.WC
	}{{"polled", (*end).polls}, {"waited", (*end).wait}} {
		t.Run(c.name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 8)
			r.greets()
			r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken}))
			for i := range uint64(8) {
				r.asks(i)
				require.NoError(t, func() error { wc := c.take(b); return wc.Err() }())
				h, _ := r.hears(wire.Ack)
				require.NotZero(t, h.Flags&wire.FlagAck)
			}
		})
	}
}

// TestCloseEndsSleep checks that a goroutine sleeping in CQ.Wait wakes when the CQ is closed,
// although the QP for whose messages it slept was closed without a completion.
func TestCloseEndsSleep(t *testing.T) {
	_, dev := newIWARP(t, 0, ibcompat.Config{})
	ctx := open(t, dev)
	pd, err := ctx.AllocPD()
	require.NoError(t, err)
	defer func() { require.NoError(t, pd.Close()) }()
	cq, err := ctx.CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		var wcs [1]verbs.WC
		_, err := cq.Wait(soon(t), wcs[:])
		done <- err
	}()
	asleep.Until(t, 1, "engine.(*cq).sleepIn")
	require.NoError(t, qp.Close())
	require.NoError(t, cq.Close())
	require.ErrorIs(t, <-done, verbs.ErrClosed)
}
