// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/verbs"
)

// hushed polls until the poller keeps the watch.
func (s *side) hushed() {
	s.t.Helper()
	s.trusted()
	var wcs [1]verbs.WC
	for limit := time.Now().Add(patience); s.keeper() != byPoller; {
		n, err := s.rcq.Poll(wcs[:])
		require.NoError(s.t, err)
		require.Zero(s.t, n)
		require.True(s.t, time.Now().Before(limit), "the watch is not hushed")
	}
}

// TestPoller polls until the watch is hushed, and gets what arrives then, small and larger than what wakes the reader.
func TestPoller(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.hushed()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.polledNext(b.rcq).Opcode)
		b.hushed()
		a.post(verbs.WRRDMAWriteWithImm, 4*hushBytes, b)
		require.EqualValues(t, 4*hushBytes, b.polledNext(b.rcq).ByteLen)
	}
	require.NotEqual(t, byPoller, a.keeper(), "the other side has not polled")
}

// TestPollerGone stops to poll. What the peer asks for is answered all the same: what came before and what comes after the
// program has been missed. A poll now and then does not hush.
func TestPollerGone(t *testing.T) {
	a, b := twoSides(t, Config{})
	for range 5 {
		b.hushed()
		a.answeredBy(b)
		a.answeredBy(b)
		b.becomes(byReader)
		a.answeredBy(b)
	}
	b.trusted()
	var wcs [1]verbs.WC
	for range 3 * hushPolls {
		time.Sleep(hushPeriod / 20)
		_, err := b.rcq.Poll(wcs[:])
		require.NoError(t, err)
		require.NotEqual(t, byPoller, b.keeper())
	}
}

// TestPollerSleeps sleeps while the watch is hushed: completions wake whoever sleeps.
func TestPollerSleeps(t *testing.T) {
	a, b := twoSides(t, Config{Spin: 50 * time.Microsecond})
	for range 20 {
		b.hushed()
		a.post(verbs.WRSend, 0, b)
		require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
	}
}

// TestPollerReceivesWhatCame has a message arrive in the quiet; who ends the quiet receives it.
func TestPollerReceivesWhatCame(t *testing.T) {
	a, b := twoSides(t, Config{})
	b.hushed()
	b.conn.rx.mu.Lock() // keeps others from receiving
	a.post(verbs.WRSend, 0, b)
	sent := a.next(a.scq)
	require.NoError(t, sent.Err())
	b.conn.rx.mu.Unlock()
	require.Equal(t, verbs.WCRecv, b.next(b.rcq).Opcode)
}

// TestPollerEnd ends the connection of a hushed watch, from either side and by a reset.
func TestPollerEnd(t *testing.T) {
	for name, end := range map[string]func(a, b *side) error{
		"by the peer":        func(a, b *side) error { return a.id.Close() },
		"by itself":          func(a, b *side) error { return b.id.Close() },
		"by closing the QP":  func(a, b *side) error { return b.qp.Close() },
		"by the peer's fail": func(a, b *side) error { return a.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) },
		"by a reset":         func(a, b *side) error { return a.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := twoSides(t, Config{})
			b.hushed()
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
			for range 2 * hushPolls {
				w.poll(clock())
			}
			require.NotEqual(t, byPoller, b.keeper())
		})
	}
}

// lowWater reads SO_RCVLOWAT.
func (s *side) lowWater() int {
	s.t.Helper()
	n, err := unix.GetsockoptInt(s.conn.s.(*tcpStream).fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT)
	require.NoError(s.t, err)
	return n
}

// TestPollerSocket looks at the socket: the quiet is there, and goes.
func TestPollerSocket(t *testing.T) {
	a, b := twoSides(t, Config{})
	require.LessOrEqual(t, b.lowWater(), 1)
	b.hushed()
	b.watch().recall()
	require.LessOrEqual(t, b.lowWater(), 1)
	b.hushed()
	require.Eventually(t, func() bool { return b.lowWater() <= 1 }, patience, hushPeriod)
	require.LessOrEqual(t, a.lowWater(), 1)
}
