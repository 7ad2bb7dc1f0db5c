// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// busyPolled polls until the poller keeps the watch.
func (s *side) busyPolled() {
	s.t.Helper()
	s.trusted()
	var wcs [1]verbs.WC
	for limit := time.Now().Add(patience); s.keeper() != byPoller; {
		n, err := s.rcq.Poll(wcs[:])
		require.NoError(s.t, err)
		require.Zero(s.t, n)
		require.True(s.t, time.Now().Before(limit), "the poller does not keep the watch")
	}
}

// TestPoller polls until the poller keeps the watch, and then receives arriving data: a few bytes,
// and more than it takes to wake the reader.
func TestPoller(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.busyPolled()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.polledNext(b.rcq).Opcode)
		b.busyPolled()
		a.post(verbs.WRRDMAWriteWithImm, 4*busyPollBytes, b)
		require.EqualValues(t, 4*busyPollBytes, b.polledNext(b.rcq).ByteLen)
	}
	require.NotEqual(t, byPoller, a.keeper(), "the other side has not polled")
}

// TestPollerGone: the program stops polling. The peer's requests are still answered, both those
// that arrive before the end of the lease and later ones. If the program polls only occasionally,
// the poller does not keep the watch.
func TestPollerGone(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.busyPolled()
		a.answeredBy(b)
		a.answeredBy(b)
		b.becomes(byReader)
		a.answeredBy(b)
	}
	b.trusted()
	var wcs [1]verbs.WC
	for range 3 * busyPolls {
		time.Sleep(busyPeriod / 20)
		_, err := b.rcq.Poll(wcs[:])
		require.NoError(t, err)
		require.NotEqual(t, byPoller, b.keeper())
	}
}

// TestPollerSleeps: a goroutine sleeps while the poller keeps the watch, and completions wake it.
func TestPollerSleeps(t *testing.T) {
	a, b := twoSides(t, Config{Spin: 50 * time.Microsecond})
	for range 20 {
		b.busyPolled()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
	}
}

// TestPollerReceivesWhatCame: a message arrives while the source is quiet. The goroutine that ends
// the quiet period receives it.
func TestPollerReceivesWhatCame(t *testing.T) {
	a, b := twoSides(t, Config{})
	b.busyPolled()
	b.conn.rx.mu.Lock() // keeps others from receiving
	a.post(verbs.WRSend, 0, b)
	sent := a.next(a.scq)
	require.NoError(t, sent.Err())
	b.conn.rx.mu.Unlock()
	require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
}

// TestPollerEnd ends the connection of a watch kept by the poller, from either side and with a
// reset.
func TestPollerEnd(t *testing.T) {
	for name, end := range map[string]func(a, b *side) error{
		"by the peer":       func(a, b *side) error { return a.id.Close() },
		"by itself":         func(a, b *side) error { return b.id.Close() },
		"by closing the QP": func(a, b *side) error { return b.qp.Close() },
		"by the peer's fail": func(a, b *side) error {
			return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr},
				verbs.QPAttrState)
		},
		"by a reset": func(a, b *side) error { return a.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoSides(t, Config{})
			b.busyPolled()
			w := b.watch()
			require.NoError(t, end(a, b))
			select {
			case <-b.id.Done():
			case <-time.After(patience):
				require.FailNow(t, "the connection has not ended")
			}
			if name == "by a reset" {
				require.NotErrorIs(t, b.id.Err(), net.ErrClosed)
			}
			for range 2 * busyPolls {
				w.poll(clock())
			}
			require.NotEqual(t, byPoller, b.keeper())
		})
	}
}

// rcvLowat reads SO_RCVLOWAT.
func (s *side) rcvLowat() int {
	s.t.Helper()
	n, err := unix.GetsockoptInt(s.conn.s.(*tcpStream).fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	require.NoError(s.t, err)
	return n
}

// TestPollerSocket checks SO_RCVLOWAT of the socket while the source is quiet, and afterwards.
func TestPollerSocket(t *testing.T) {
	a, b := twoSides(t, Config{})
	require.LessOrEqual(t, b.rcvLowat(), 1)
	b.busyPolled()
	b.watch().recall()
	require.LessOrEqual(t, b.rcvLowat(), 1)
	b.busyPolled()
	require.Eventually(t, func() bool { return b.rcvLowat() <= 1 }, patience, busyPeriod)
	require.LessOrEqual(t, a.rcvLowat(), 1)
}

// TestPollerPassesBy polls while another goroutine receives: the poll does not wait.
func TestPollerPassesBy(t *testing.T) {
	_, b := twoSides(t, Config{})
	b.conn.rx.mu.Lock()
	defer b.conn.rx.mu.Unlock()
	n, err := b.rcq.Poll(make([]verbs.WC, 1))
	require.NoError(t, err)
	require.Zero(t, n)
}

// TestPollerAsked counts the peer's requests that need no program: a Read, an atomic, a Write
// without a message after it.
func TestPollerAsked(t *testing.T) {
	a, b := twoSides(t, Config{})
	for name, op := range map[string]struct {
		op    verbs.WROpcode
		size  int
		asked int
	}{
		"Read":           {verbs.WRRDMARead, 64, 1},
		"atomic":         {verbs.WRAtomicFetchAndAdd, 8, 1},
		"Write":          {verbs.WRRDMAWrite, 64, 1},
		"Write with Imm": {verbs.WRRDMAWriteWithImm, 64, 0},
		"Send":           {verbs.WRSend, 0, 0},
	} {
		b.conn.rx.mu.Lock()
		a.post(op.op, op.size, b)
		var all arrivals
		for limit := time.Now().Add(patience); all.conns == 0 && time.Now().Before(limit); {
			all, _ = b.conn.receiveLocked()
		}
		b.conn.rx.mu.Unlock()
		require.Equal(t, 1, all.conns, name)
		require.Equal(t, op.asked, all.asked, name)
		wc := a.next(a.scq)
		require.NoError(t, wc.Err())
		b.polledFlushed()
		if op.op == verbs.WRRDMAWrite { // a message completes what the Write began
			a.post(verbs.WRSend, 0, b)
			require.Equal(t, verbs.WCRecv, b.polledNext(b.rcq).Opcode)
			wc = a.next(a.scq)
			require.NoError(t, wc.Err())
		}
	}
}
