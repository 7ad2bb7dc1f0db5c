// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// TestBubble: in a bubble the network's delays take no time, and are exact.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := goverbstest.New(t, goverbstest.Options{OnDial: func(l *usiwtest.Link) {
			l.Delay(time.Second)
			l.Split(3)
		}})
		client, server := nw.Pair(t, cm.EndpointConfig{}, cm.EndpointConfig{})
		began := time.Now()
		send(t, client, server, "slow")
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestBubblePoll: in a bubble time stands still while a goroutine polls, and advances when it
// waits.
func TestBubblePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := goverbstest.New(t, goverbstest.Options{})
		client, server := nw.Pair(t, cm.EndpointConfig{}, cm.EndpointConfig{})
		nw.Links()[0].Delay(time.Second)
		began := time.Now()
		require.NoError(t, client.Send(t.Context(), nil))
		wcs := make([]verbs.WC, 1)
		for range 10_000 {
			n, err := server.QP().RecvCQ().Poll(wcs)
			require.NoError(t, err)
			require.Zero(t, n)
		}
		require.Zero(t, time.Since(began))
		_, err := server.Recv(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// TestStalledAtTheEnd: stalled connections do not delay the end of the test, even if the NICs would
// wait for an hour.
func TestStalledAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := judge(t, func(tb testing.TB) {
			nw := goverbstest.New(tb, goverbstest.Options{Config: usiw.Config{CloseTimeout: time.Hour}})
			connect(tb, nw)
			nw.Links()[0].Stall()
		})
		require.Contains(t, got.error(t), "16 handles were not closed")
		require.Less(t, time.Since(began), time.Minute)
	})
}

// TestStallAndCut: a stalled connection continues as if nothing had happened; a cut one fails on
// both sides.
func TestStallAndCut(t *testing.T) {
	nw := goverbstest.New(t, goverbstest.Options{})
	client, server := nw.Pair(t, cm.EndpointConfig{}, cm.EndpointConfig{})
	link := nw.Links()[0]
	before := link.ToListener.Written()
	link.Stall()
	arrived := make(chan bool, 1)
	go func() {
		for link.ToListener.Written() == before {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err := server.Recv(ctx, nil)
		arrived <- !errors.Is(err, context.DeadlineExceeded)
		link.Resume()
	}()
	require.NoError(t, client.Send(t.Context(), []byte("in spite of the stall")))
	require.False(t, <-arrived, "it was on its way")
	p := make([]byte, 100)
	wc, err := server.Recv(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "in spite of the stall", string(p[:wc.ByteLen]))

	link.Cut()
	for _, ep := range []*cm.Endpoint{client, server} {
		<-ep.ID().Done()
		require.ErrorIs(t, ep.ID().Err(), syscall.ECONNRESET)
	}
}
