// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
)

// limit bounds what a test waits for.
const limit = 30 * time.Second

// connect connects two NICs, and leaves it to the caller to close the endpoints.
func connect(tb testing.TB, nw *goverbstest.Network) (client, server *cm.Endpoint) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: nw.Device(0)})
	require.NoError(tb, err)
	defer ln.Close()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
		accepted <- err
	}()
	client, err = cm.Dial(ctx, "server:7306", cm.Config{Device: nw.Device(1)}, cm.EndpointConfig{})
	require.NoError(tb, err)
	require.NoError(tb, <-accepted)
	return client, server
}

// send sends a text, which must arrive.
func send(tb testing.TB, from, to *cm.Endpoint, text string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	require.NoError(tb, from.Send(ctx, []byte(text)))
	p := make([]byte, cm.DefaultMessageSize)
	wc, err := to.Recv(ctx, p)
	require.NoError(tb, err)
	require.Equal(tb, text, string(p[:wc.ByteLen]))
}

// exchange connects two NICs, sends a text, and closes everything.
func exchange(tb testing.TB, nw *goverbstest.Network, text string) {
	tb.Helper()
	client, server := connect(tb, nw)
	send(tb, client, server, text)
	closeAll(tb, client, server)
}

func closeAll(tb testing.TB, all ...*cm.Endpoint) {
	tb.Helper()
	for _, ep := range all {
		require.NoError(tb, ep.Close())
	}
}
