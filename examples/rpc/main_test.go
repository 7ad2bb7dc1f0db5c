// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
)

func Example() {
	main()
	// Output: 300 calls answered
}

// start starts a server on the first NIC of a network; it stops with the test.
func start(t *testing.T, nw *goverbstest.Network) {
	t.Helper()
	ln, err := cm.Listen(t.Context(), "server:7306", cm.Config{Device: nw.Device(0)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- serve(ctx, ln, upper) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
		require.NoError(t, ln.Close())
	})
}

// client connects a client on the second NIC.
func client(t *testing.T, nw *goverbstest.Network) *cm.Endpoint {
	t.Helper()
	ep, err := dial(t.Context(), "server:7306", nw.Device(1))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ep.Close()) })
	return ep
}

// A client whose connection breaks does not affect another client, and costs no receive.
func TestBrokenClient(t *testing.T) {
	nw := goverbstest.New(t, goverbstest.Options{})
	start(t, nw)
	good := client(t, nw)
	for i := range receives + 1 {
		bad := client(t, nw)
		_, err := call(t.Context(), bad, "before")
		require.NoError(t, err)
		link := nw.Links()[1+i]
		link.ToListener.CutAt(link.ToListener.Written() + 10) // within the next request
		_, err = call(t.Context(), bad, "lost")
		require.Error(t, err)
		require.NoError(t, bad.Close())

		answer, err := call(t.Context(), good, "still there")
		require.NoError(t, err)
		require.Equal(t, "STILL THERE", answer)
	}
}

// The response to an abandoned call remains for the next Recv, so the client reconnects.
func TestSlowNetwork(t *testing.T) {
	nw := goverbstest.New(t, goverbstest.Options{})
	start(t, nw)
	slow := client(t, nw)
	nw.Links()[0].Stall()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := call(ctx, slow, "given up")
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	nw.Links()[0].Resume()
	require.NoError(t, slow.Close())

	answer, err := call(t.Context(), client(t, nw), "again")
	require.NoError(t, err)
	require.Equal(t, "AGAIN", answer)
}
