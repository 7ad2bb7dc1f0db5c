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
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// numbered returns messages 0 to n-1 of one byte each.
func numbered(n int) (all []byte) {
	for i := range n {
		all = append(all, byte(i))
	}
	return all
}

// sendAll sends each byte as a message.
func sendAll(ctx context.Context, ep *cm.Endpoint, all []byte) error {
	for i := range all {
		if err := ep.Send(ctx, all[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// takeRest receives messages until the connection ends.
func takeRest(ctx context.Context, ep *cm.Endpoint) (taken []byte, err error) {
	for p := make([]byte, 1); ; taken = append(taken, p[0]) {
		if _, err := ep.Recv(ctx, p); err != nil {
			return taken, err
		}
	}
}

// insists calls Shutdown with contexts that expire soon, until it returns anything else.
func insists(ctx context.Context, ep *cm.Endpoint) error {
	for limit := 10 * time.Microsecond; ; limit *= 2 {
		short, cancel := context.WithTimeout(ctx, limit)
		err := ep.Shutdown(short)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// TestShutdownBoth: with ShutdownBoth, two sides that each send any number of messages, at any
// time, both get nil, even if their calls are interrupted, and then everything has arrived.
func TestShutdownBoth(t *testing.T) {
	devices(t, func(t *testing.T, dev *verbs.Device) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		for round := range 12 {
			ctx := within(t)
			cfg := cm.EndpointConfig{Messages: 40, MessageSize: 1, ShutdownBoth: true}
			a, b := endpoints(t, dev, cfg, cfg)
			counts := [2]int{random.IntN(41), random.IntN(41)}
			interrupted := [2]bool{random.IntN(3) == 0, random.IntN(3) == 0}
			var both errgroup.Group
			for i, ep := range []*cm.Endpoint{a, b} {
				both.Go(func() error {
					if err := sendAll(ctx, ep, numbered(counts[i])); err != nil {
						return err
					}
					shutdown := ep.Shutdown
					if interrupted[i] {
						shutdown = func(ctx context.Context) error { return insists(ctx, ep) }
					}
					if err := shutdown(ctx); err != nil {
						return fmt.Errorf("side %d: %w", i, err)
					}
					return nil
				})
			}
			require.NoError(t, both.Wait(), "seed %d, round %d: %v, %v", seed, round, counts, interrupted)
			for i, ep := range []*cm.Endpoint{b, a} {
				require.NoError(t, ep.Shutdown(ctx), "again")
				taken, err := takeRest(ctx, ep)
				require.Error(t, err)
				require.NoError(t, ctx.Err())
				require.True(t, bytes.Equal(numbered(counts[i]), taken), "seed %d, round %d: %v instead of %d", seed,
					round, taken, counts[i])
			}
		}
	})
}

// TestShutdownBothWaits: a side in Shutdown still receives what the other sends, and waits for it.
func TestShutdownBothWaits(t *testing.T) {
	for _, first := range []string{"dialled", "accepted"} {
		t.Run(first, func(t *testing.T) {
			ctx, dev := within(t), usiwDevice(t)
			cfg := cm.EndpointConfig{Messages: 4, MessageSize: 1, ShutdownBoth: true}
			early, late := endpoints(t, dev, cfg, cfg)
			if first == "accepted" {
				early, late = late, early
			}
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			require.NoError(t, early.Send(ctx, []byte{7}))
			require.ErrorIs(t, early.Shutdown(short), context.DeadlineExceeded)
			require.NoError(t, early.ID().Err(), "the connection has not ended")
			require.ErrorIs(t, early.Send(ctx, nil), verbs.ErrClosed)
			ended := make(chan error, 1)
			go func() { ended <- early.Shutdown(ctx) }()
			p := make([]byte, 1)
			_, err := late.Recv(ctx, p)
			require.NoError(t, err)
			require.EqualValues(t, 7, p[0])
			for i := range byte(100) { // more than there are receives
				require.NoError(t, late.Send(ctx, []byte{i}))
				_, err := early.Recv(ctx, p)
				require.NoError(t, err)
				require.Equal(t, i, p[0])
			}
			require.NoError(t, late.Shutdown(ctx))
			require.NoError(t, <-ended)
		})
	}
}

// TestShutdownBothQueues: ShutdownBoth consumes no receive, neither the caller's nor an SRQ's, and
// works where there are none.
func TestShutdownBothQueues(t *testing.T) {
	ctx, dev := within(t), usiwDevice(t)
	vctx, err := dev.SharedContext()
	require.NoError(t, err)
	pd, err := vctx.AllocPD()
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(verbs.SRQAttr{MaxWR: 4})
	require.NoError(t, err)
	none := cm.EndpointConfig{Messages: cm.None, Memory: 8, Access: verbs.AccessRemoteWrite, Offer: true,
		ShutdownBoth: true}
	shared := none
	shared.PD, shared.SRQ = pd, srq
	for _, passive := range []cm.EndpointConfig{none, shared} {
		a, b := endpoints(t, dev, none, passive)
		ends := []*cm.Endpoint{a, b}
		var both sync.WaitGroup
		var failed [2]error
		for i, ep := range ends {
			both.Go(func() {
				to, err := verbs.ParseRemote(ep.PrivateData())
				if err == nil {
					var sge verbs.SGE
					if sge, err = ep.MR().SGE(0, 4); err == nil {
						ep.MR().Bytes()[0] = byte(i + 1)
						to, err = to.Slice(4, 4)
					}
					if err == nil {
						_, err = ep.Do(ctx, verbs.Write(to, sge))
					}
				}
				failed[i] = errors.Join(err, ep.Shutdown(ctx))
			})
		}
		both.Wait()
		require.NoError(t, errors.Join(failed[:]...))
		require.EqualValues(t, 2, a.MR().Bytes()[4])
		require.EqualValues(t, 1, b.MR().Bytes()[4])
		require.NoError(t, errors.Join(a.Close(), b.Close()))
	}
	require.NoError(t, errors.Join(srq.Close(), pd.Close()))
}

// other returns an endpoint's offer with 8 bytes replaced from an offset on: its address is at 8,
// its key at 16, flags at 20, the number of its receives at 24.
func other(said []byte, at int, v uint64) []byte {
	b := append(bytes.Clone(said[:cm.FenceLen]), make([]byte, 8)...)
	binary.BigEndian.PutUint64(b[at:], v)
	return b[:cm.FenceLen]
}

// TestShutdownBothPeers: ShutdownBoth is negotiated only with peers that have set it, and does not
// affect the programs' own private data.
func TestShutdownBothPeers(t *testing.T) {
	ctx, dev := within(t), usiwDevice(t)
	both := cm.EndpointConfig{ShutdownBoth: true, Param: cm.ConnParam{PrivateData: []byte("ours")}}
	a, b := endpoints(t, dev, both, both)
	require.Equal(t, "ours", string(a.PrivateData()))
	require.Equal(t, "ours", string(b.PrivateData()))
	require.Len(t, b.ID().PrivateData(), 4+cm.FenceLen)

	ln := listener(t, dev)
	try := func(active, passive cm.EndpointConfig) (dialled, accepted error) {
		done := make(chan error, 1)
		go func() {
			ep, err := ln.AcceptEndpoint(ctx, passive)
			done <- errors.Join(err, ep.Close())
		}()
		ep, dialled := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: dev}, active)
		return errors.Join(dialled, ep.Close()), <-done
	}
	dialled, accepted := try(cm.EndpointConfig{}, both)
	require.ErrorIs(t, dialled, cm.ErrRejected)
	require.ErrorIs(t, accepted, verbs.ErrNotSupported)
	dialled, _ = try(both, cm.EndpointConfig{}) // the other side had no reason to refuse
	require.ErrorIs(t, dialled, verbs.ErrNotSupported)

	// Private data that only resemble an offer.
	said := b.ID().PrivateData()[4:]
	require.Len(t, said, cm.FenceLen)
	for _, data := range [][]byte{said[:cm.FenceLen-1], said[1:], append(bytes.Clone(said), 1), other(said, 8, 1<<64-8),
		other(said, 20, 1<<39), other(said, 20, 0)} {
		_, accepted = try(cm.EndpointConfig{NoCredits: true, Param: cm.ConnParam{PrivateData: data}}, both)
		require.ErrorIs(t, accepted, verbs.ErrNotSupported, "%x", data)
	}
	// A region that does not exist ends the connection, not the program.
	wrong := other(said, 16, 0x7777<<32|1)
	ended := make(chan error, 1)
	go func() {
		ep, err := ln.AcceptEndpoint(ctx, both)
		if err == nil {
			err = ep.Send(ctx, nil)
		}
		if err == nil {
			err = ep.Shutdown(ctx)
		}
		ended <- errors.Join(err, ep.Close())
	}()
	ep, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: dev},
		cm.EndpointConfig{NoCredits: true, Param: cm.ConnParam{PrivateData: wrong}})
	require.NoError(t, err)
	require.Error(t, <-ended)
	require.NoError(t, ctx.Err())
	require.NoError(t, ep.Close())
}

// TestShutdownBothEnds: the wait ends if the peer disconnects in another way, or on Close.
func TestShutdownBothEnds(t *testing.T) {
	cfg := cm.EndpointConfig{Messages: 4, ShutdownBoth: true}
	for _, waiter := range []string{"dialled", "accepted"} {
		t.Run(waiter, func(t *testing.T) {
			for _, own := range []bool{false, true} {
				ctx := within(t)
				w, peer := endpoints(t, usiwDevice(t), cfg, cfg)
				if waiter == "accepted" {
					w, peer = peer, w
				}
				require.NoError(t, w.Send(ctx, []byte("last")))
				ended := make(chan error, 1)
				go func() { ended <- w.Shutdown(ctx) }()
				_, err := peer.Recv(ctx, make([]byte, 4))
				require.NoError(t, err)
				if own {
					require.NoError(t, w.Close())
					require.ErrorIs(t, <-ended, verbs.ErrClosed)
				} else {
					require.NoError(t, peer.Close())
					require.ErrorIs(t, <-ended, io.EOF)
				}
				require.NoError(t, ctx.Err())
			}
		})
	}
}
