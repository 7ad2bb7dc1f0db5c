// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// fabrics are devices that end the connection for a message without a receive, and one that
// retransmits the message.
func fabrics(t *testing.T, run func(t *testing.T, dev *verbs.Device)) {
	plain := func(t *testing.T) *verbs.Device {
		nic, err := usiw.New(usiw.Config{SetupTimeout: 30 * time.Second, Without: ext.Operations})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nic.Close()) })
		return nic.Device()
	}
	shared := func(t *testing.T, dev *verbs.Device) *verbs.Device {
		t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
		return dev
	}
	for name, dev := range map[string]func(t *testing.T) *verbs.Device{
		"usiw":       func(t *testing.T) *verbs.Device { return usiwDevice(t) },
		"usiw-plain": plain,
		"forward":    func(t *testing.T) *verbs.Device { return shared(t, forward.Wrap(usiwDevice(t))) },
		"ib": func(t *testing.T) *verbs.Device {
			ib, err := ibcompat.Wrap(shared(t, usiwDevice(t)), ibcompat.Config{})
			require.NoError(t, err)
			return shared(t, ib)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, dev(t))
		})
	}
}

// number is the text of a message.
func number(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// takeNumber receives the next message, which must be number n.
func takeNumber(ctx context.Context, ep *cm.Endpoint, n int) error {
	var p [8]byte
	wc, err := ep.Recv(ctx, p[:])
	if err != nil {
		return fmt.Errorf("message %d: %w", n, err)
	}
	if got := binary.BigEndian.Uint64(p[:]); wc.ByteLen != 8 || got != uint64(n) {
		return fmt.Errorf("%d bytes, message %d instead of %d", wc.ByteLen, got, n)
	}
	return nil
}

// TestCreditSlowReader: a sender that is faster than its peer waits, and all messages arrive in
// order.
func TestCreditSlowReader(t *testing.T) {
	const messages, slow, receives = 10000, 3, 16
	fabrics(t, func(t *testing.T, dev *verbs.Device) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		a, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{MessageSize: 8})
		var sent, taken atomic.Int64
		var both errgroup.Group
		both.Go(func() error {
			for n := range messages {
				if err := a.Send(ctx, number(n)); err != nil {
					return fmt.Errorf("Send %d: %w", n, err)
				}
				// a message is received before it is counted
				if ahead := sent.Add(1) - taken.Load(); ahead > receives+1 {
					return fmt.Errorf("%d messages have no receive", ahead-receives)
				}
			}
			return a.Shutdown(ctx)
		})
		both.Go(func() error {
			for n := range messages {
				if n < slow {
					time.Sleep(time.Second)
				}
				if err := takeNumber(ctx, b, n); err != nil {
					return err
				}
				taken.Add(1)
			}
			return nil
		})
		require.NoError(t, both.Wait())
		_, err := b.Recv(ctx, nil)
		require.ErrorIs(t, err, io.EOF)
	})
}

// TestCreditBothWays: with every queue size, in both directions at once, with Send and with lists
// of Do that are longer than the peer's receives, all messages arrive.
func TestCreditBothWays(t *testing.T) {
	const lists = 60
	fabrics(t, func(t *testing.T, dev *verbs.Device) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		for _, receives := range [][2]int{{1, 1}, {1, 16}, {2, 3}, {4, 5}, {16, 16}} {
			ctx := within(t)
			var cfg [2]cm.EndpointConfig
			for i := range cfg {
				cfg[i] = cm.EndpointConfig{Messages: receives[i], MessageSize: 8, Memory: 8,
					Access: verbs.AccessRemoteRead, Offer: true, Cap: verbs.QPCap{MaxSendWR: 1 + random.IntN(6)}}
			}
			a, b := endpoints(t, dev, cfg[0], cfg[1])
			ends := []*cm.Endpoint{a, b}
			var sizes [2][]int // of lists; 0 = Send
			var total [2]int
			for i := range ends {
				for range lists {
					n := random.IntN(cfg[i].Cap.MaxSendWR + 1)
					sizes[i] = append(sizes[i], n)
					total[i] += max(n, 1)
				}
			}
			var all errgroup.Group
			for i, ep := range ends {
				all.Go(func() error {
					sge, err := ep.MR().SGE(0, 8)
					if err != nil {
						return err
					}
					n := 0
					for _, size := range sizes[i] {
						if size == 0 {
							err = ep.Send(ctx, number(0))
							n++
						} else {
							list := make([]verbs.SendWR, size)
							for j := range list {
								list[j] = verbs.Send(sge)
							}
							_, err = ep.Do(ctx, list...)
							n += size
						}
						if err != nil {
							return fmt.Errorf("side %d, a list of %d, after %d messages: %w", i, size, n, err)
						}
					}
					return nil
				})
				// requests other than messages need no credit, and overtake messages that wait
				all.Go(func() error {
					from, err := verbs.ParseRemote(ep.PrivateData())
					if err != nil {
						return err
					}
					into, err := ep.PD().AllocMR(8, verbs.AccessLocalWrite)
					if err != nil {
						return err
					}
					for range lists {
						sge, _ := into.SGE(0, 8)
						if _, err := ep.Do(ctx, verbs.Read(from, sge)); err != nil {
							return fmt.Errorf("side %d, a Read: %w", i, err)
						}
					}
					return into.Close()
				})
				all.Go(func() error {
					for n := range total[1-i] {
						if err := takeNumber(ctx, ep, 0); err != nil {
							return fmt.Errorf("side %d, %d of %d: %w", i, n, total[1-i], err)
						}
						if n%16 == 0 {
							time.Sleep(time.Millisecond)
						}
					}
					return nil
				})
			}
			require.NoError(t, all.Wait(), "seed %d: %v, %v", seed, receives, cfg)
			require.NoError(t, errors.Join(a.Close(), b.Close()))
		}
	})
}

// full returns two endpoints. The first has used all n receives of the second.
func full(ctx context.Context, t *testing.T, n int) (a, b *cm.Endpoint) {
	a, b = endpoints(t, usiwDevice(t), cm.EndpointConfig{Memory: 8},
		cm.EndpointConfig{Messages: n, MessageSize: 8, Memory: 8, Access: verbs.AccessRemoteRead, Offer: true})
	for i := range n {
		require.NoError(t, a.Send(ctx, number(i)))
	}
	return a, b
}

// waits starts a call that must wait.
func waits(t *testing.T, call func() error) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	select {
	case err := <-ended:
		require.Fail(t, "the call has not waited", "%v", err)
	case <-time.After(30 * time.Millisecond):
	}
	return ended
}

// sends returns a Send of a number.
func sends(ctx context.Context, ep *cm.Endpoint, n int) func() error {
	return func() error { return ep.Send(ctx, number(n)) }
}

// TestCreditWait: what ends a waiting Send, and what a waiting Send does not delay.
func TestCreditWait(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		ctx := within(t)
		a, b := full(ctx, t, 3)
		short, cancel := context.WithCancel(ctx)
		ended := waits(t, sends(short, a, 99))
		behind, end := context.WithCancel(ctx)
		second := waits(t, sends(behind, a, 99))
		end()
		require.ErrorIs(t, <-second, context.Canceled, "behind another one")
		cancel()
		err := <-ended
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, errors.As(err, new(*cm.PendingError)), "nothing was posted")
		first := waits(t, sends(ctx, a, 3))
		for n := range 4 { // 99 is not among them
			require.NoError(t, takeNumber(ctx, b, n))
		}
		require.NoError(t, <-first)
	})
	t.Run("part of a list", func(t *testing.T) {
		ctx := within(t)
		a, b := full(ctx, t, 2)
		require.NoError(t, takeNumber(ctx, b, 0))
		require.NoError(t, takeNumber(ctx, b, 1))
		copy(a.MR().Bytes(), number(2))
		sge, err := a.MR().SGE(0, 8)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err = a.Do(short, verbs.Send(sge), verbs.Send(sge), verbs.Send(sge))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var pending *cm.PendingError
		if errors.As(err, &pending) { // two have been posted
			_, err = pending.Wait(ctx)
			require.NoError(t, err)
		}
		for range 2 {
			require.NoError(t, takeNumber(ctx, b, 2))
		}
		require.NoError(t, a.Send(ctx, number(3)))
		require.NoError(t, takeNumber(ctx, b, 3))
	})
	t.Run("other requests", func(t *testing.T) {
		ctx := within(t)
		a, b := full(ctx, t, 1)
		ended := waits(t, sends(ctx, a, 1))
		from, err := verbs.ParseRemote(a.PrivateData())
		require.NoError(t, err)
		sge, err := a.MR().SGE(0, 8)
		require.NoError(t, err)
		_, err = a.Do(ctx, verbs.Read(from, sge))
		require.NoError(t, err, "it needs no receive")
		require.NoError(t, b.Send(ctx, number(7)))
		require.NoError(t, takeNumber(ctx, a, 7))
		require.NoError(t, takeNumber(ctx, b, 0))
		require.NoError(t, <-ended)
	})
	t.Run("Shutdown", func(t *testing.T) {
		ctx := within(t)
		a, b := full(ctx, t, 2)
		ended := waits(t, sends(ctx, a, 2))
		require.NoError(t, a.Shutdown(ctx), "it does not wait for the peer's program")
		require.ErrorIs(t, <-ended, verbs.ErrClosed)
		require.NoError(t, takeNumber(ctx, b, 0))
		require.NoError(t, takeNumber(ctx, b, 1))
		_, err := b.Recv(ctx, nil)
		require.ErrorIs(t, err, io.EOF)
	})
	t.Run("Close", func(t *testing.T) {
		ctx := within(t)
		a, _ := full(ctx, t, 2)
		ended := waits(t, sends(ctx, a, 2))
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-ended, verbs.ErrClosed)
	})
	t.Run("the peer closes", func(t *testing.T) {
		ctx := within(t)
		a, b := full(ctx, t, 2)
		ended := waits(t, sends(ctx, a, 2))
		require.NoError(t, b.Close())
		require.ErrorIs(t, <-ended, io.EOF)
	})
}

// TestCreditReceives: receives of the caller count, and a credit Write consumes none of them.
func TestCreditReceives(t *testing.T) {
	ctx := within(t)
	post := func(ep *cm.Endpoint, ids ...uint64) error {
		var wrs []verbs.RecvWR
		for _, id := range ids {
			wrs = append(wrs, verbs.RecvWR{ID: id})
		}
		return ep.PostRecv(wrs...)
	}
	cfg := cm.EndpointConfig{Messages: cm.None,
		Prepare: func(ep *cm.Endpoint, _ *cm.ConnParam) error { return post(ep, 0) }}
	a, b := endpoints(t, usiwDevice(t), cm.EndpointConfig{}, cfg)
	next := uint64(0)
	take := func() {
		t.Helper()
		wc, err := b.Recv(ctx, nil)
		require.NoError(t, err)
		require.Equal(t, next, wc.ID)
		next++
	}
	require.NoError(t, a.Send(ctx, nil))
	for range 3 { // one receive at a time, posted before and after the message has been taken
		ended := waits(t, func() error { return a.Send(ctx, nil) })
		require.NoError(t, post(b, next+1))
		take()
		require.NoError(t, <-ended)
		ended = waits(t, func() error { return a.Send(ctx, nil) })
		take()
		require.NoError(t, post(b, next))
		require.NoError(t, <-ended)
	}
	take()
	require.NoError(t, post(b, next, next+1, next+2, next+3))
	_, err := a.Do(ctx, verbs.Send(), verbs.Send(), verbs.Send())
	require.NoError(t, err)
	for range 3 {
		take()
	}
	ended := waits(t, func() error {
		_, err := a.Do(ctx, verbs.Send(), verbs.Send())
		return err
	})
	take()
	require.NoError(t, post(b, next))
	require.NoError(t, <-ended)
	take()
}

// byHand is a peer that is not an endpoint: it dials with the private data of make, which gets
// words that it can offer, and has two receives.
type byHand struct {
	id    *cm.ID
	cq    *verbs.CQ
	qp    *verbs.QP
	words *verbs.MR
	close func() error
}

// dialByHand dials an endpoint that is accepted with cfg.
func dialByHand(ctx context.Context, t *testing.T, dev *verbs.Device, cfg cm.EndpointConfig,
	private func(words verbs.Remote) []byte) (*byHand, *cm.Endpoint) {
	t.Helper()
	ln := listener(t, dev)
	accepted := make(chan error, 1)
	var ep *cm.Endpoint
	go func() {
		var err error
		ep, err = ln.AcceptEndpoint(ctx, cfg)
		accepted <- err
	}()
	id, err := cm.Resolve(ctx, ln.Addr().String(), cm.Config{Device: dev})
	require.NoError(t, err)
	p := &byHand{id: id}
	pd, err := id.Context().AllocPD()
	require.NoError(t, err)
	p.cq, err = id.Context().CreateCQ(verbs.CQConfig{})
	require.NoError(t, err)
	p.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: p.cq, RecvCQ: p.cq})
	require.NoError(t, err)
	p.words, err = pd.AllocMR(64, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(id.Close(), p.qp.Close(), p.words.Close(), p.cq.Close(), pd.Close()))
	})
	require.NoError(t, id.BindQP(p.qp))
	_, err = p.qp.PostRecv(make([]verbs.RecvWR, 2))
	require.NoError(t, err)
	require.NoError(t, id.Connect(ctx, p.qp, cm.ConnParam{PrivateData: private(p.words.Remote())}))
	require.NoError(t, <-accepted)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	return p, ep
}

// offers returns the private data of an endpoint that offers words and credits, with so many
// receives.
func offers(t *testing.T, dev *verbs.Device, words verbs.Remote, flags, receives uint32) []byte {
	t.Helper()
	_, b := endpoints(t, dev, cm.EndpointConfig{}, cm.EndpointConfig{})
	said := other(b.ID().PrivateData(), 8, words.Addr)
	return other(other(said, 16, uint64(words.RKey)<<32|uint64(flags)), 20, uint64(flags)<<32|uint64(receives))
}

const offersCredits = 2

// put writes the credit word: how many receives were posted since the offer.
func (p *byHand) put(ctx context.Context, t *testing.T, v uint64) {
	t.Helper()
	said := p.id.PrivateData()
	require.Len(t, said, cm.FenceLen)
	sge, err := p.words.SGE(48, 8)
	require.NoError(t, err)
	binary.LittleEndian.PutUint64(p.words.Bytes()[48:], v)
	to := verbs.Remote{Addr: binary.BigEndian.Uint64(said[8:]) + 16, Length: 8,
		RKey: binary.BigEndian.Uint32(said[16:])}
	_, err = p.qp.PostSend([]verbs.SendWR{verbs.Write(to, sge)})
	require.NoError(t, err)
	for { // the two receives complete into the same CQ
		var wc [1]verbs.WC
		_, err = p.cq.Wait(ctx, wc[:])
		require.NoError(t, err)
		if wc[0].Opcode == verbs.WCRDMAWrite {
			require.NoError(t, wc[0].Err())
			return
		}
	}
}

// TestCreditPeers: a peer that is not an endpoint sees nothing of credits, neither bytes nor a
// limit; nor does a peer whose receives are not counted.
func TestCreditPeers(t *testing.T) {
	ctx, dev := within(t), usiwDevice(t)
	beyond := func(a *cm.Endpoint) { // 2 receives, and more messages
		t.Helper()
		var err error
		for n := 0; err == nil; n++ {
			err = a.Send(ctx, nil)
		}
		require.NoError(t, ctx.Err(), "it has not waited")
		require.ErrorContains(t, err, "no buffer available")
	}
	p, a := dialByHand(ctx, t, dev, cm.EndpointConfig{}, func(verbs.Remote) []byte { return []byte("mine") })
	require.Empty(t, p.id.PrivateData())
	require.Equal(t, "mine", string(a.PrivateData()))
	beyond(a)

	two := cm.EndpointConfig{Messages: 2}
	without := two
	without.NoCredits = true
	_, a = endpoints(t, dev, without, cm.EndpointConfig{})
	require.Empty(t, a.ID().PrivateData())
	beyond(a)
	a, b := endpoints(t, dev, cm.EndpointConfig{}, without)
	require.Len(t, b.ID().PrivateData(), cm.FenceLen)
	require.Empty(t, b.PrivateData())
	require.Empty(t, a.ID().PrivateData())
	beyond(a)

	vctx, err := dev.SharedContext()
	require.NoError(t, err)
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: 4})
	require.NoError(t, err)
	_, err = srq.PostRecv(make([]verbs.RecvWR, 2))
	require.NoError(t, err)
	shared := cm.EndpointConfig{PD: pd, SRQ: srq, MessageSize: 8}
	a, b = endpoints(t, dev, two, shared)
	for range 2 { // the other direction has credits
		require.NoError(t, b.Send(ctx, nil))
	}
	ended := waits(t, func() error { return b.Send(ctx, nil) })
	for range 2 {
		_, err = a.Recv(ctx, nil)
		require.NoError(t, err)
	}
	require.NoError(t, <-ended)
	beyond(a)
	require.NoError(t, errors.Join(a.Close(), b.Close(), srq.Close(), pd.Close()))
}

// TestCreditLies: what a peer says about its receives can delay messages to it, and nothing else.
func TestCreditLies(t *testing.T) {
	ctx, dev := within(t), usiwDevice(t)
	speak := func(flags, receives uint32) (*byHand, *cm.Endpoint) {
		return dialByHand(ctx, t, dev, cm.EndpointConfig{Messages: 4},
			func(words verbs.Remote) []byte { return offers(t, dev, words, flags, receives) })
	}
	t.Run("more than there are", func(t *testing.T) {
		_, ep := speak(offersCredits, 1<<32-1)
		var err error
		for err == nil {
			err = ep.Send(ctx, nil)
		}
		require.NoError(t, ctx.Err())
		require.ErrorContains(t, err, "no buffer available")
	})
	t.Run("backwards and garbage", func(t *testing.T) {
		p, ep := speak(offersCredits, 1)
		require.NoError(t, ep.Send(ctx, nil))
		ended := waits(t, func() error { return ep.Send(ctx, nil) })
		for _, v := range []uint64{1<<64 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 1<<32} {
			p.put(ctx, t, v)
		}
		select {
		case err := <-ended:
			require.Fail(t, "Send has not waited", "%v", err)
		case <-time.After(50 * time.Millisecond):
		}
		p.put(ctx, t, 1)
		require.NoError(t, <-ended)
		p.put(ctx, t, 0)
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, ep.Send(short, nil), context.DeadlineExceeded)
	})
	t.Run("the lowest byte first", func(t *testing.T) {
		p, ep := speak(offersCredits, 1)
		p.put(ctx, t, 1<<56) // 1 in the other byte order
		for range 2 {
			require.NoError(t, ep.Send(ctx, nil))
		}
		require.ErrorContains(t, errors.Join(ep.Send(ctx, nil), ep.Send(ctx, nil), ep.Shutdown(ctx)),
			"no buffer available", "it was allowed")
	})
	t.Run("no offer", func(t *testing.T) {
		p, ep := speak(0x80|offersCredits, 1)
		require.Empty(t, p.id.PrivateData(), "another flag")
		require.Len(t, ep.PrivateData(), cm.FenceLen, "it belongs to the program")
	})
	t.Run("words that are not there", func(t *testing.T) {
		p, ep := dialByHand(ctx, t, dev, cm.EndpointConfig{Messages: 4}, func(words verbs.Remote) []byte {
			words.RKey ^= 0x5500
			return offers(t, dev, words, offersCredits, 2)
		})
		for range 4 {
			_, err := p.qp.PostSend([]verbs.SendWR{verbs.Send()})
			require.NoError(t, err)
		}
		var err error
		for err == nil { // the fourth of these, or the first Send, takes a Write along
			_, err = ep.Recv(ctx, nil)
		}
		require.NoError(t, ctx.Err())
		require.ErrorContains(t, err, "invalid STag")
	})
	t.Run("what the endpoint reads", func(t *testing.T) {
		p, ep := speak(offersCredits, 2)
		said := p.id.PrivateData()
		to := verbs.Remote{Addr: binary.BigEndian.Uint64(said[8:]), Length: 48,
			RKey: binary.BigEndian.Uint32(said[16:])}
		sge, err := p.words.SGE(0, 48)
		require.NoError(t, err)
		copy(p.words.Bytes(), bytes.Repeat([]byte{0x5a}, 48)) // the key opens all words of the endpoint
		_, err = p.qp.PostSend([]verbs.SendWR{verbs.Write(to, sge), verbs.Send(), verbs.Send(), verbs.Send(),
			verbs.Send()})
		require.NoError(t, err)
		for range 4 {
			_, err = ep.Recv(ctx, nil)
			require.NoError(t, err)
		}
		require.NoError(t, ep.Send(ctx, nil))
		require.NoError(t, ep.Shutdown(ctx))
	})
}
