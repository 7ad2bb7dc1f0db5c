// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/testbed/load"
)

// TestOneHostCredit: two endpoints that both send much more than the other has receives for, and
// read one message a second for a while, lose nothing, keep the order, and both shut down.
func TestOneHostCredit(t *testing.T) {
	for _, pair := range [][2]string{{"siw0", "siw0"}, {"siw0", "usiw"}, {"usiw", "siw0"}, {"rxe0", "rxe0"},
		{"ib:rxe0", "ib:rxe0"}, {"ib:siw0", "ib:siw0"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			open(t, "siw0")
			from := open(t, pair[0])
			to := from
			if pair[0] != pair[1] {
				to = open(t, pair[1])
				to.listen = listenOn["siw0"]
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*load.Limit)
			defer cancel()
			ln, err := cm.Listen(ctx, to.listen, cm.Config{Device: to.dev})
			require.NoError(t, err)
			defer func() { require.NoError(t, ln.Close()) }()
			cfg := cm.EndpointConfig{MessageSize: 8, ShutdownBoth: true}
			var both errgroup.Group
			accepted := make(chan struct{})
			both.Go(func() error {
				b, err := ln.AcceptEndpoint(ctx, cfg)
				close(accepted)
				if err != nil {
					return err
				}
				return errors.Join(exchange(ctx, b), b.Close())
			})
			a, err := cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: from.dev}, cfg)
			require.NoError(t, err)
			closes(t, accepted, "Accept") // see lostSends
			require.NoError(t, errors.Join(exchange(ctx, a), a.Close()))
			require.NoError(t, both.Wait())
		})
	}
}

// exchange sends messages to an endpoint whose program does the same, and receives as many.
func exchange(ctx context.Context, ep *cm.Endpoint) error {
	const slow = 3
	messages := 10_000
	if race.Enabled {
		messages = 500 // the guest is slow
	}
	var both errgroup.Group
	both.Go(func() error {
		for n := range messages {
			if err := ep.Send(ctx, binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
				return fmt.Errorf("Send %d: %w", n, err)
			}
		}
		return nil
	})
	both.Go(func() error {
		p := make([]byte, 8)
		for n := range messages {
			if n < slow {
				time.Sleep(time.Second)
			}
			if wc, err := ep.Recv(ctx, p); err != nil || wc.ByteLen != 8 {
				return fmt.Errorf("Recv %d: %d bytes: %w", n, wc.ByteLen, err)
			}
			if got := binary.BigEndian.Uint64(p); got != uint64(n) {
				return fmt.Errorf("message %d instead of %d", got, n)
			}
		}
		return nil
	})
	if err := both.Wait(); err != nil {
		return err
	}
	return ep.Shutdown(ctx)
}
