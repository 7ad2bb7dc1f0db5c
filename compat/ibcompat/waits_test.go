// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// over waits until the connection has ended.
func (e *end) over() {
	e.Helper()
	select {
	case <-e.id.Done():
	case <-soon(e).Done():
		require.FailNow(e, "the connection goes on")
	}
}

// answers sends the number of messages taken.
func (r *raw) answers() { r.say(message(wire.Header{Kind: wire.Ack, Taken: r.taken})) }

// offers advertises receives.
func (r *raw) offers(first uint64, adverts ...wire.Advert) {
	msg := message(wire.Header{Kind: wire.Ack, Taken: r.taken, Adverts: uint8(len(adverts)), First: first})
	for i := range adverts {
		msg = adverts[i].Append(msg)
	}
	r.say(msg)
}

// TestNotReadyCount checks that a peer without a receive is asked once more than its retry count,
// with its interval between an answer and the next question. Then the Send fails, or is sent if a
// receive arrives with the last answer.
func TestNotReadyCount(t *testing.T) {
	const timer, wait = 20, 10240 * time.Microsecond
	for retries := range uint8(4) {
		for _, comes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d retries, a receive comes: %v", retries, comes), func(t *testing.T) {
				r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
				hello := rawHello
				hello.RNRRetries, hello.RNRTimer = retries, timer
				r.say(hello.Append(nil))
				r.hears(wire.Credit)
				r.answers()
				b.post(verbs.Send(b.sgl(0, 8)...))
				var answered time.Time
				for i := range retries + 1 {
					h, _ := r.hears(wire.Credit, wire.Bye)
					require.Equal(t, wire.Credit, h.Kind, "after %d answers", i)
					require.NotZero(t, h.Flags&wire.FlagAsk)
					if i > 0 {
						require.GreaterOrEqual(t, time.Since(answered), wait)
					}
					if answered = time.Now(); i == retries && comes {
						r.offers(0, wire.Advert{Total: 64})
						r.hears(wire.Data)
						r.answers()
						b.ends(verbs.WCSuccess, 0)
						return
					}
					r.answers()
				}
				b.ends(verbs.WCRNRRetryExcErr, 0)
				require.ErrorIs(t, b.qp.Err(), verbs.WCRNRRetryExcErr)
				r.hears(wire.Bye)
			})
		}
	}
}

// TestNotReadyAgain checks that retries are counted for each Send separately.
func TestNotReadyAgain(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	hello := rawHello
	hello.RNRRetries, hello.RNRTimer = 2, 1
	r.say(hello.Append(nil))
	r.hears(wire.Credit)
	r.answers()
	for i := range uint64(3) {
		b.post(verbs.Send(b.sgl(0, 8)...))
		for range 2 {
			r.hears(wire.Credit)
			r.answers()
		}
		r.hears(wire.Credit)
		r.offers(i, wire.Advert{Total: 64})
		r.hears(wire.Data)
		r.answers()
		b.ends(verbs.WCSuccess, 0)
	}
}

// TestNotReadyTimer checks that the interval is the one set by the receiver's program, through its
// connection parameters or its QP attributes. In the latter case the sender sets the count.
func TestNotReadyTimer(t *testing.T) {
	const timer, count, least = 20, 3, 3 * 10240 * time.Microsecond
	_, dev := newIWARP(t, ext.Operations, ibcompat.Config{})
	one, two := open(t, dev), open(t, dev)
	for name, pair := range map[string]func() (a, b *end){
		"manager": func() (a, b *end) {
			return connectWith(t, one, two, verbs.QPConfig{}, cm.ConnParam{RNRRetryCount: count, MinRNRTimer: timer})
		},
		"hand": func() (a, b *end) {
			a, b = handPair(t, one, two)
			for _, e := range []*end{b, a} {
				first, second := e.rtr(a.qp.Num()+b.qp.Num()-e.qp.Num()), rts
				if e == a {
					second.RNRRetry = count
				} else {
					first.MinRNRTimer = timer
				}
				require.NoError(t, e.qp.Modify(first, rtrMask))
				require.NoError(t, e.qp.Modify(second, rtsMask))
			}
			b.recv(7)
			a.post(verbs.Send(a.sgl(0, 8)...)) // the connection exists
			b.ends(verbs.WCSuccess, 7)
			a.ends(verbs.WCSuccess, 0)
			return a, b
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := pair()
			start := time.Now()
			a.post(verbs.SendWR{ID: 9, Opcode: verbs.WRSend, SGL: a.sgl(0, 8)})
			a.ends(verbs.WCRNRRetryExcErr, 9)
			require.GreaterOrEqual(t, time.Since(start), least)
		})
	}
}

// TestBehindAtomic checks that while an atomic is unanswered, no later request accesses the peer's
// memory: neither a Write or a Read, nor a Send long enough to use Writes.
func TestBehindAtomic(t *testing.T) {
	const long = 8192
	for name, request := range map[string]func(to verbs.Remote, from verbs.SGE) verbs.SendWR{
		"Write": func(to verbs.Remote, from verbs.SGE) verbs.SendWR { return verbs.Write(to, from) },
		"Write with immediate": func(to verbs.Remote, from verbs.SGE) verbs.SendWR {
			return verbs.WriteImm(to, 5,
				from)
		},
		"Read":      func(to verbs.Remote, from verbs.SGE) verbs.SendWR { return verbs.Read(to, from) },
		"long Send": func(_ verbs.Remote, from verbs.SGE) verbs.SendWR { return verbs.Send(from) },
	} {
		t.Run(name, func(t *testing.T) {
			r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
			far, err := r.pd.AllocMR(long, allRights)
			require.NoError(t, err)
			defer far.Close()
			near, err := b.pd.AllocMR(long, allRights)
			require.NoError(t, err)
			defer near.Close()
			regmem.Place(near.Bytes(), bytes.Repeat([]byte{'n'}, long))
			sge, err := near.SGE(0, long)
			require.NoError(t, err)
			to := verbs.Remote{Addr: far.Addr(), Length: long, RKey: far.RKey()}
			r.greets()
			r.offers(0, wire.Advert{Total: long,
				Segments: []wire.Segment{{Addr: far.Addr(), RKey: far.RKey(), Length: long}}})
			wr := request(to, sge)
			atomic := verbs.FetchAdd(to, 1, b.sgl(64, 8)[0])
			atomic.ID, wr.ID = 1, 2
			b.post(atomic, wr)
			r.hears(wire.Atomic)
			// The acknowledgement follows everything that was sent.
			r.say(message(wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Taken: r.taken,
				Value: uint64(allRights)}))
			h, _ := r.hears(wire.Ack, wire.Placed, wire.WriteImm)
			require.Equal(t, wire.Ack, h.Kind)
			was := make([]byte, long)
			regmem.Fetch(was, far.Bytes())
			require.Equal(t, make([]byte, long), was)
			regmem.Place(far.Bytes(), bytes.Repeat([]byte{'f'}, long))
			r.say(message(wire.Header{Kind: wire.Answer, Value: 77, Taken: r.taken}))
			b.ends(verbs.WCSuccess, 1)
			require.EqualValues(t, 77, b.word(64))
			if wr.Opcode != verbs.WRRDMARead {
				r.hears(wire.Placed, wire.WriteImm, wire.Credit)
				r.answers()
			}
			b.ends(verbs.WCSuccess, 2)
			is, want := make([]byte, long), bytes.Repeat([]byte{'n'}, long)
			if wr.Opcode == verbs.WRRDMARead {
				want = bytes.Repeat([]byte{'f'}, long)
			}
			regmem.Fetch(is, near.Bytes())
			require.Equal(t, want, is)
			regmem.Fetch(is, far.Bytes())
			require.Equal(t, want, is)
		})
	}
}

// TestAtomicBehindRead checks that an atomic is sent once the Reads before it are answered, so that
// they cannot see its effect.
func TestAtomicBehindRead(t *testing.T) {
	const long = 4 << 20
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	far, err := r.pd.AllocMR(long, allRights)
	require.NoError(t, err)
	defer far.Close()
	near, err := b.pd.AllocMR(long, allRights)
	require.NoError(t, err)
	defer near.Close()
	binary.NativeEndian.PutUint64(far.Bytes()[long-8:], 5)
	sge, err := near.SGE(0, long)
	require.NoError(t, err)
	r.greets()
	r.answers()
	to := verbs.Remote{Addr: far.Addr(), Length: long, RKey: far.RKey()}
	b.post(verbs.Read(to, sge), verbs.FetchAdd(to, 1, b.sgl(64, 8)[0]))
	r.hears(wire.Atomic)
	var word [8]byte
	regmem.Fetch(word[:], near.Bytes()[long-8:])
	require.EqualValues(t, 5, binary.NativeEndian.Uint64(word[:]))
	r.say(message(wire.Header{Kind: wire.Answer, Taken: r.taken}))
	b.ends(verbs.WCSuccess, 0, 0)
}

// TestFenceBehindAtomic checks that a Send with SendFence is sent once the atomic before it is
// answered, with the value that it returned.
func TestFenceBehindAtomic(t *testing.T) {
	r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
	r.greets()
	r.offers(0, wire.Advert{Total: 64})
	send := verbs.Send(b.sgl(64, 8)...)
	send.Flags |= verbs.SendFence
	b.post(verbs.FetchAdd(verbs.Remote{Addr: r.mem.Addr(), Length: 8, RKey: r.mem.RKey()}, 1, b.sgl(64, 8)[0]), send)
	h, _ := r.hears(wire.Atomic, wire.Data)
	require.Equal(t, wire.Atomic, h.Kind)
	r.say(message(wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Taken: r.taken}))
	h, _ = r.hears(wire.Ack, wire.Data)
	require.Equal(t, wire.Ack, h.Kind)
	r.say(message(wire.Header{Kind: wire.Answer, Value: 77, Taken: r.taken}))
	_, body := r.hears(wire.Data)
	require.EqualValues(t, 77, binary.NativeEndian.Uint64(body))
	r.answers()
	b.ends(verbs.WCSuccess, 0, 0)
}

// TestReadOfNothing checks that a Read of 0 bytes completes once the peer is known to have
// everything before it, even a Write that completed earlier because nobody waits for it.
func TestReadOfNothing(t *testing.T) {
	for _, cfg := range []ibcompat.Config{{}, {Relaxed: true}} {
		r, b := newRaw(t, ext.Operations, cfg, 0)
		r.greets()
		r.answers()
		to := verbs.Remote{Addr: r.mem.Addr(), Length: 1 << 30, RKey: r.mem.RKey()}
		write, read := verbs.Write(to, b.sgl(0, 8)...), verbs.Read(to)
		write.ID, read.ID = 1, 2
		write.Flags |= verbs.SendRelaxed
		read.Flags |= verbs.SendRelaxed // no effect on a Read
		b.post(write, read)
		b.ends(verbs.WCSuccess, 1)
		r.hears(wire.Credit) // requests the confirmation
		var wcs [1]verbs.WC
		n, err := b.cq.Poll(wcs[:])
		require.NoError(t, err)
		require.Zero(t, n, "%v", wcs)
		r.answers()
		b.ends(verbs.WCSuccess, 2)
	}
}

// accusing is an RNIC whose completions report that the peer refused a Write, as some RNICs do.
type accusing struct{ verbs.ProviderDevice }

func (d accusing) Unwrap() verbs.ProviderDevice { return d.ProviderDevice }

func (d accusing) Open(owner *verbs.Context) (verbs.ProviderContext, error) {
	c, err := d.ProviderDevice.Open(owner)
	return accusingContext{c}, err
}

type accusingContext struct{ verbs.ProviderContext }

func (c accusingContext) Unwrap() verbs.ProviderContext { return c.ProviderContext }

func (c accusingContext) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel,
	vector int) (verbs.ProviderCQ, error) {
	q, err := c.ProviderContext.CreateCQ(owner, cqe, ch, vector)
	return accusingCQ{q}, err
}

type accusingCQ struct{ verbs.ProviderCQ }

func (q accusingCQ) Unwrap() verbs.ProviderCQ { return q.ProviderCQ }

func (q accusingCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := q.ProviderCQ.Poll(wcs)
	for i := range wcs[:n] {
		if wcs[i].Status == verbs.WCSuccess && wcs[i].Opcode == verbs.WCRDMAWrite {
			wcs[i].Status = verbs.WCRemAccessErr
		}
	}
	return n, err
}

// TestRefusedPlace checks that a long Send whose Write is refused by the peer's device fails as for
// an invalid receive, because the fault is the peer's. A Write keeps the status, unless the peer's
// QP does not allow it.
func TestRefusedPlace(t *testing.T) {
	const long = 8192
	const all = verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	for _, c := range []struct {
		name   string
		send   bool
		rights verbs.AccessFlags // announced by the peer
		want   verbs.WCStatus
	}{
		{"Send", true, all, verbs.WCRemOpErr}, {"Write", false, all, verbs.WCRemAccessErr},
		{"Write that is not allowed", false, verbs.AccessRemoteRead, verbs.WCRemInvReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			nic, err := usiw.New(usiw.Config{Without: ext.Operations})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nic.Close()) })
			in := verbs.NewDevice(accusing{forward.Wrap(nic.Device()).Provider()})
			t.Cleanup(func() { require.NoError(t, in.CloseShared()) })
			dev, err := ibcompat.Wrap(in, ibcompat.Config{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
			r, b := newRawTo(t, dev, ext.Operations, 0)
			near, err := b.pd.AllocMR(long, 0)
			require.NoError(t, err)
			defer near.Close()
			sge, err := near.SGE(0, long)
			require.NoError(t, err)
			r.say(rawHello.Append(nil))
			r.hears(wire.Credit)
			place := wire.Advert{Total: long,
				Segments: []wire.Segment{{Addr: r.mem.Addr(), RKey: r.mem.RKey(), Length: long}}}
			r.say(place.Append(message(
				wire.Header{Kind: wire.Credit, Flags: wire.FlagAsk, Adverts: 1, Taken: r.taken,
					Value: uint64(c.rights)})))
			r.hears(wire.Ack)
			wr := verbs.Write(verbs.Remote{Addr: r.mem.Addr(), Length: long, RKey: r.mem.RKey()}, sge)
			if c.send {
				wr = verbs.Send(sge)
			}
			b.post(wr)
			b.ends(c.want, 0)
			b.over()
			require.ErrorIs(t, b.qp.Err(), verbs.WCRemAccessErr)
		})
	}
}

// TestRefusedSends checks that a peer that refuses a Send identifies it by its count: earlier
// requests were executed, Writes included, and later ones are flushed. No other status is valid in
// a refusal.
func TestRefusedSends(t *testing.T) {
	for taken := range uint64(3) {
		for _, status := range []verbs.WCStatus{verbs.WCRemOpErr, verbs.WCRemInvReqErr, verbs.WCRemAccessErr,
			verbs.WCLocProtErr} {
			t.Run(fmt.Sprintf("%d/%v", taken, status), func(t *testing.T) {
				r, b := newRaw(t, ext.Operations, ibcompat.Config{}, 0)
				r.greets()
				r.offers(0, wire.Advert{Total: 64}, wire.Advert{Total: 64}, wire.Advert{Total: 64})
				before := r.taken
				var list []verbs.SendWR
				for id := range uint64(3) {
					if id == taken {
						write := verbs.Write(verbs.Remote{Addr: r.mem.Addr(), Length: 8, RKey: r.mem.RKey()},
							b.sgl(0, 8)...)
						write.ID = 10
						list = append(list, write)
					}
					list = append(list, verbs.SendWR{ID: id, Opcode: verbs.WRSend, SGL: b.sgl(0, 8),
						Flags: verbs.SendSignaled})
				}
				b.post(list...)
				for range 3 {
					r.hears(wire.Data)
				}
				r.say(message(wire.Header{Kind: wire.Refused, Status: uint8(status), Taken: before + taken}))
				if status != verbs.WCRemOpErr {
					b.over()
					var violated *ibcompat.ProtocolError
					require.ErrorAs(t, b.qp.Err(), &violated)
					require.ErrorContains(t, violated, "a refusal")
					return
				}
				want := verbs.WCSuccess
				for _, wr := range list {
					switch {
					case want != verbs.WCSuccess:
						want = verbs.WCWRFlushErr
					case wr.ID == taken:
						want = verbs.WCRemOpErr
					}
					b.ends(want, wr.ID)
				}
				require.NoError(t, r.id.Disconnect())
			})
		}
	}
}
