// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/verbs"
)

// shutdowns is how often connections are shut down from a device that could otherwise lose data,
// and from others.
const shutdowns, shutdownsOfOthers = 8, 2

// lostByShutdown connects two devices, lets one side send while the other answers each message, and
// shuts the connection down as soon as the Sends have completed. It returns the number of those
// that did not arrive.
func lostByShutdown(t *testing.T, from, to *site) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Limit)
	defer cancel()
	cfg := cm.EndpointConfig{MessageSize: talkLen, Messages: talkDepth, Memory: talkLen,
		Cap: verbs.QPCap{MaxSendWR: talkDepth}}
	ln, err := cm.Listen(ctx, to.listen, cm.Config{Device: to.dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	accepted, got := make(chan struct{}), 0
	var peer errgroup.Group
	peer.Go(func() error {
		b, err := ln.AcceptEndpoint(ctx, cfg)
		close(accepted)
		if err != nil {
			return err
		}
		var answers sync.WaitGroup
		answer := make(chan struct{}, head+completed)
		answers.Go(func() {
			text := make([]byte, talkLen)
			for range answer {
				_ = b.Send(ctx, text) // the last ones are cut off
			}
		})
		for p := make([]byte, talkLen); err == nil; {
			if _, err = b.Recv(ctx, p); err != nil {
				break
			}
			if got++; got == 1 {
				for range head - 1 {
					answer <- struct{}{}
				}
			}
			answer <- struct{}{}
		}
		close(answer)
		answers.Wait()
		return errors.Join(ctx.Err(), b.Close())
	})
	a, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: from.dev}, cfg)
	require.NoError(t, err)
	closes(t, accepted, "Accept") // see lostSends
	sends := make([]verbs.SendWR, completed)
	sge, err := a.MR().SGE(0, talkLen)
	require.NoError(t, err)
	for i := range sends {
		sends[i] = verbs.Send(sge)
	}
	_, err = a.Do(ctx, sends...)
	require.NoError(t, err)
	_, err = a.Recv(ctx, make([]byte, talkLen))
	require.NoError(t, err)
	require.NoError(t, a.Shutdown(ctx))
	require.NoError(t, peer.Wait())
	require.NoError(t, a.Close())
	return completed - got
}

// lostByBoth connects two devices, lets both sides send concurrently without waiting for each
// other, and both shut down as soon as their Sends have completed. It returns how many messages did
// not arrive, in both directions.
func lostByBoth(t *testing.T, from, to *site) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Limit)
	defer cancel()
	cfg := cm.EndpointConfig{MessageSize: talkLen, Messages: completed, Memory: talkLen,
		Cap: verbs.QPCap{MaxSendWR: completed}, ShutdownBoth: true}
	ln, err := cm.Listen(ctx, to.listen, cm.Config{Device: to.dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	got := 0
	var mu sync.Mutex
	talk := func(ep *cm.Endpoint, first bool) error {
		sends := make([]verbs.SendWR, completed)
		sge, err := ep.MR().SGE(0, talkLen)
		if err != nil {
			return err
		}
		for i := range sends {
			sends[i] = verbs.Send(sge)
		}
		if !first { // siw fails if the accepting side sends first
			if _, err := ep.Recv(ctx, make([]byte, talkLen)); err != nil {
				return err
			}
			mu.Lock()
			got++
			mu.Unlock()
		}
		if _, err := ep.Do(ctx, sends...); err != nil {
			return err
		}
		if err := ep.Shutdown(ctx); err != nil {
			return err
		}
		for p := make([]byte, talkLen); err == nil; {
			if _, err = ep.Recv(ctx, p); err == nil {
				mu.Lock()
				got++
				mu.Unlock()
			}
		}
		return errors.Join(ctx.Err(), ep.Close())
	}
	var both errgroup.Group
	accepted := make(chan struct{})
	both.Go(func() error {
		b, err := ln.AcceptEndpoint(ctx, cfg)
		close(accepted)
		if err != nil {
			return err
		}
		return talk(b, false)
	})
	a, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: from.dev}, cfg)
	require.NoError(t, err)
	closes(t, accepted, "Accept") // see lostSends
	require.NoError(t, talk(a, true))
	require.NoError(t, both.Wait())
	return 2*completed - got
}

// TestOneHostShutdownBoth: if both sides shut down with ShutdownBoth, both return nil and
// everything that either sent has arrived.
func TestOneHostShutdownBoth(t *testing.T) {
	bothShutDown(t, [2]string{"siw0", "usiw"}, [2]string{"usiw", "usiw"}, [2]string{"rxe0", "rxe0"})
}

// TestListenerShutdownBoth: the same with siw as the accepting side, and on devices with InfiniBand
// semantics. In rare runs the kernel loses a listener of siw, which crashes the guest
// (docs/interop.md), so this test does not run for every change.
func TestListenerShutdownBoth(t *testing.T) {
	bothShutDown(t, [2]string{"siw0", "siw0"}, [2]string{"usiw", "siw0"}, [2]string{"ib:siw0", "ib:siw0"},
		[2]string{"ib:rxe0", "ib:rxe0"})
}

func bothShutDown(t *testing.T, pairs ...[2]string) {
	for _, pair := range pairs {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			open(t, "siw0")
			from := open(t, pair[0])
			to := from
			if pair[0] != pair[1] {
				to = open(t, pair[1])
				to.listen = listenOn["siw0"]
			}
			runs := shutdownsOfOthers
			if strings.HasSuffix(pair[0], "siw0") {
				runs = shutdowns
			}
			for range runs {
				require.Zero(t, lostByBoth(t, from, to))
			}
		})
	}
}

// TestOneHostShutdown: after Endpoint.Shutdown everything that completed has arrived, even from
// kernel siw to a peer that is sending.
func TestOneHostShutdown(t *testing.T) {
	for _, pair := range [][2]string{{"siw0", "usiw"}, {"siw0", "siw0"}, {"usiw", "siw0"}, {"usiw", "usiw"},
		{"rxe0", "rxe0"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			open(t, "siw0")
			from, to := open(t, pair[0]), open(t, pair[1])
			if pair[0] != pair[1] {
				to.listen = listenOn["siw0"]
			}
			runs := shutdownsOfOthers
			if pair[0] == "siw0" {
				runs = shutdowns
			}
			for range runs {
				require.Zero(t, lostByShutdown(t, from, to))
			}
		})
	}
	t.Run("a device that wraps siw0", func(t *testing.T) {
		s := open(t, "siw0")
		s.dev = forward.Wrap(s.dev)
		t.Cleanup(func() { require.NoError(t, s.dev.CloseShared()) })
		for range shutdownsOfOthers {
			require.Zero(t, lostByShutdown(t, s, s))
		}
	})
}
