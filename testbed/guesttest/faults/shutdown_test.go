// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/verbs"
)

// shutdowns is how often connections are shut down from a device that would lose something otherwise, and from others.
const shutdowns, shutdownsOfOthers = 8, 2

// lostByShutdown connects two devices, has one side send while the other one answers each message, and shuts it down as soon as its
// Sends have completed. It returns the number of those that did not arrive.
func lostByShutdown(t *testing.T, from, to *site) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), load.Limit)
	defer cancel()
	cfg := cm.EndpointConfig{MessageSize: talkLen, Messages: talkDepth, Memory: talkLen, Cap: verbs.QPCap{MaxSendWR: talkDepth}}
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
	a, err := cm.DialEndpoint(ctx, ln.Addr().String(), cm.Config{Device: from.dev}, cfg)
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

// TestOneHostShutdown: after Endpoint.Shutdown everything that completed has arrived, also from kernel siw to a peer that sends.
func TestOneHostShutdown(t *testing.T) {
	for _, pair := range [][2]string{{"siw0", "usiw"}, {"siw0", "siw0"}, {"usiw", "siw0"}, {"usiw", "usiw"}, {"rxe0", "rxe0"}} {
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
