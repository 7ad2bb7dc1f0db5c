// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"bytes"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/siw/siwtest"
)

// In a bubble the delays of the network take no time, and are exact.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := goverbstest.New(t, goverbstest.Options{OnDial: func(l *siwtest.Link) {
			l.Delay(time.Second)
			l.Split(3)
		}})
		server, client := connect(t, nw)
		began := time.Now()
		send(t, client, server, "slow")
		require.Equal(t, time.Second, time.Since(began))
		client.close(t)
		server.close(t)
	})
}

// Connections that are stalled when the test ends do not keep it from ending, even if the NICs would wait for an hour.
func TestStalledAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got := judge(t, func(tb testing.TB) {
			nw := goverbstest.New(tb, goverbstest.Options{Config: siw.Config{CloseTimeout: time.Hour}})
			connect(tb, nw)
			nw.Links()[0].Stall()
		})
		require.Contains(t, got.error(t), "10 handles were not closed")
		require.Less(t, time.Since(began), time.Minute)
	})
}

// A stalled connection goes on as if nothing had been; a cut one fails on both sides.
func TestStallAndCut(t *testing.T) {
	nw := goverbstest.New(t, goverbstest.Options{})
	server, client := connect(t, nw)
	link := nw.Links()[0]
	before := link.ToListener.Written()
	link.Stall()
	arrived := make(chan []byte, 1)
	go func() {
		for link.ToListener.Written() == before {
			time.Sleep(time.Millisecond)
		}
		arrived <- bytes.Clone(server.mr.Bytes()[:10])
		link.Resume()
	}()
	send(t, client, server, "in spite of the stall")
	require.Equal(t, make([]byte, 10), <-arrived, "it was on its way")

	link.Cut()
	for _, s := range []*side{server, client} {
		<-s.id.Done()
		require.ErrorIs(t, s.qp.Err(), syscall.ECONNRESET)
	}
	server.close(t)
	client.close(t)
}
