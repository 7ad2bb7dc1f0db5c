// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// pairLimit bounds the set-up of a pair.
const pairLimit = 30 * time.Second

// Pair connects two NICs: the first listens and the second dials. If there is only one NIC, it does
// both. The endpoints are closed when the test tb ends, before the checks of New; the test may
// close them earlier. If they cannot be connected, the test fails at once.
func (nw *Network) Pair(tb testing.TB, dial, accept cm.EndpointConfig) (dialled, accepted *cm.Endpoint) {
	tb.Helper()
	dialled, accepted, err := connect(nw.Device(min(1, len(nw.NICs)-1)), nw.Device(0), dial, accept)
	tb.Cleanup(func() {
		tb.Helper()
		if err := errors.Join(dialled.Close(), accepted.Close()); err != nil {
			tb.Errorf("goverbstest: %v", err)
		}
	})
	if err != nil {
		tb.Fatalf("goverbstest: Pair: %v", err)
	}
	return dialled, accepted
}

// connect returns the endpoints that it created, even if it fails.
func connect(from, to *verbs.Device, dial, accept cm.EndpointConfig) (dialled, accepted *cm.Endpoint, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), pairLimit)
	defer cancel()
	ln, err := cm.Listen(ctx, "pair:0", cm.Config{Device: to})
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	answered := make(chan error, 1)
	go func() {
		var err error
		accepted, err = ln.AcceptEndpoint(ctx, accept)
		answered <- err
	}()
	if dialled, err = cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: from}, dial); err != nil {
		_ = ln.Close()
	}
	return dialled, accepted, errors.Join(err, <-answered)
}
