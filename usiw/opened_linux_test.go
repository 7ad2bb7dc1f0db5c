// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// fired returns the channel of an expired timer.
func fired() <-chan time.Time {
	late := make(chan time.Time, 1)
	late <- time.Now()
	return late
}

// TestOpenedLate: an Accept whose goroutine runs too late, on a busy machine, accepts a first
// message that arrived in time, whether it has been handled or is still in the socket. Without a
// message it times out.
func TestOpenedLate(t *testing.T) {
	a, b := twoSides(t, Config{})
	c := b.conn
	for range 100 { // a select with two ready channels chooses either
		require.NoError(t, c.opened(context.Background(), fired()))
	}

	readersRest(t)
	c.rx.mu.Lock() // keeps others from reading
	c.rx.heard, c.spoken = false, make(chan struct{})
	a.post(verbs.WRRDMAWrite, 0, b)
	waits := 0
	for limit := time.Now().Add(patience); waits == 0 && time.Now().Before(limit); time.Sleep(time.Millisecond) {
		waits, _ = unix.IoctlGetInt(c.s.(*tcpStream).fd, unix.TIOCINQ)
	}
	result := make(chan error, 1)
	go func() { result <- c.opened(context.Background(), fired()) }()
	var early []error
	select {
	case err := <-result:
		early = append(early, err)
	case <-time.After(10 * time.Millisecond): // opened is waiting for the role
	}
	c.rx.mu.Unlock()
	require.Positive(t, waits)
	require.Empty(t, early, "with the message in the socket")
	require.NoError(t, <-result)

	c.rx.mu.Lock()
	c.spoken = make(chan struct{})
	c.rx.mu.Unlock()
	require.ErrorIs(t, c.opened(context.Background(), fired()), cm.ErrSetupTimeout)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, c.opened(ctx, nil), context.Canceled)
	require.NoError(t, a.id.Close())
	require.ErrorIs(t, c.opened(context.Background(), nil), io.EOF)
}

// TestOpenedEnded: a peer that sends its first message and then closes the connection has opened
// it.
func TestOpenedEnded(t *testing.T) {
	a, b := twoSides(t, Config{})
	require.NoError(t, a.id.Close())
	<-b.conn.flushed
	for range 100 {
		require.NoError(t, b.conn.opened(context.Background(), nil))
	}
}
