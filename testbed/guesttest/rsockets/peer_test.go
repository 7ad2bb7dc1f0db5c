// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"errors"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// period is the period of peer.c's bytes.
const period = 251

// source returns bytes of a stream starting at an offset, as peer.c sends and expects them.
func source(from, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte((from + i) % period)
	}
	return p
}

// sends writes n bytes, starting at offset from, in messages of size bytes.
func sends(t *testing.T, c *rsocket.Conn, from, n, size int) {
	t.Helper()
	for done := 0; done < n; done += size {
		_, err := c.Write(source(from+done, min(size, n-done)))
		require.NoError(t, err)
	}
}

// receives reads n bytes, starting at offset from.
func receives(t *testing.T, c *rsocket.Conn, from, n int) {
	t.Helper()
	p := make([]byte, n)
	_, err := io.ReadFull(c, p)
	require.NoError(t, err)
	require.Equal(t, source(from, n), p)
}

// ends reads to the end, which must be n bytes, starting at offset from.
func ends(t *testing.T, c *rsocket.Conn, from, n int) {
	t.Helper()
	p, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, source(from, n), p)
}

// TestSmallPeer: the C program has the smallest buffers and queues, this side the smallest or the
// default ones.
func TestSmallPeer(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		for name, cfg := range map[string]rsocket.Config{"tiny": tiny(dev), "usual": {Device: dev}} {
			t.Run(name, func(t *testing.T) {
				peer, c := p.meet(t, cfg, cServes, "rq=16", "sq=16", "buf=2048", "recv", "100000", "send", "20", "5000",
					"eof")
				sends(t, c, 0, 100000, 30000)
				receives(t, c, 0, 100000)
				p.carries(t, "peer", 1)
				require.NoError(t, c.CloseWrite())
				peer.Ends(t, 0)
			})
		}
	})
}

// TestIdleReader: this side does not read until the C program has no more room and closes its
// direction. Nothing is lost, and the answer still arrives.
func TestIdleReader(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		peer, c := p.meet(t, rsocket.Config{Device: dev}, cServes, "send", "1", "1", "fill", "1", "shut", "recv", "6",
			"eof")
		receives(t, c, 0, 1)
		n := peer.await(t, "filled")
		require.Greater(t, n, 300)
		p.carries(t, "peer", 1)
		ends(t, c, 1, n)
		sends(t, c, 0, 6, 6)
		require.NoError(t, c.Close())
		peer.Ends(t, 0)
	})
}

// TestOverrun: this side sends 300 messages and then does not poll its completions, while the C
// program sends as many as it may, and also reports that it has read. On iWARP, one missing receive
// would end the connection; package rsocket reserves some for that.
func TestOverrun(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		peer, c := p.meet(t, rsocket.Config{Device: dev, KeepAlive: rsocket.None}, cServes,
			"recv", "1", "fill", "1", "recv", "300", "say", "read", "eof")
		sends(t, c, 0, 301, 1)
		n := peer.await(t, "filled")
		require.Greater(t, n, 300)
		peer.await(t, "read")
		receives(t, c, 0, n)
		sends(t, c, 301, 1000, 100)
		require.NoError(t, c.CloseWrite())
		ends(t, c, n, 0)
		peer.Ends(t, 0)
		require.Equal(t, 1301, peer.await(t, "eof"))
	})
}

// TestOverrunOfPeer: the reverse. C rsockets reserve no receives for messages without credit, so on
// iWARP this side stops short of what it may send.
func TestOverrunOfPeer(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		peer, c := p.meet(t, rsocket.Config{Device: dev}, cServes, "send", "300", "1", "say", "sent", "wait", "eof")
		peer.await(t, "sent")
		sent := 0
		for {
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(3*time.Second)))
			_, err := c.Write(source(sent, 1))
			if err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				break
			}
			sent++
		}
		require.Greater(t, sent, 300)
		receives(t, c, 0, 300) // and tells the peer that there is room again
		peer.goOn(t)
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(limit)))
		sends(t, c, sent, 5000, 100)
		require.NoError(t, c.CloseWrite())
		ends(t, c, 300, 0)
		peer.Ends(t, 0)
		require.Equal(t, sent+5000, peer.await(t, "eof"))
	})
}

// TestHalfClose: each side in turn closes its direction first and gets an answer of 100,000 bytes;
// then both close at the same time.
func TestHalfClose(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		cfg := rsocket.Config{Device: dev}
		t.Run("C first", func(t *testing.T) {
			peer, c := p.meet(t, cfg, cServes, "send", "10", "1000", "shut", "eof")
			ends(t, c, 0, 10000)
			sends(t, c, 0, 100000, 7000)
			require.NoError(t, c.Close())
			peer.Ends(t, 0)
			require.Equal(t, 100000, peer.await(t, "eof"))
		})
		t.Run("Go first", func(t *testing.T) {
			peer, c := p.meet(t, cfg, cServes, "eof", "send", "100", "1000")
			sends(t, c, 0, 10000, 1000)
			require.NoError(t, c.CloseWrite())
			ends(t, c, 0, 100000)
			peer.Ends(t, 0)
			require.Equal(t, 10000, peer.await(t, "eof"))
		})
		t.Run("both", func(t *testing.T) {
			peer, c := p.meet(t, cfg, cServes, "send", "1", "10", "recv", "10", "say", "ready", "wait")
			sends(t, c, 0, 10, 10)
			receives(t, c, 0, 10)
			peer.await(t, "ready")
			peer.goOn(t)
			require.NoError(t, c.Close())
			peer.Ends(t, 0)
		})
	})
}

// TestPeerKilled: the C program is killed while it sends, while it receives, and while nothing
// moves. Read and Write fail.
func TestPeerKilled(t *testing.T) {
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		for name, words := range map[string][]string{
			"sends":    {"recv", "1", "send", "100000000", "1000"},
			"receives": {"recv", "1", "send", "1", "1", "eof"},
			"waits":    {"recv", "1", "send", "1", "1", "wait"},
		} {
			t.Run(name, func(t *testing.T) {
				peer, c := p.meet(t, rsocket.Config{Device: dev, KeepAlive: 500 * time.Millisecond}, cServes, words...)
				sends(t, c, 0, 1, 1)
				receives(t, c, 0, 1)
				p.carries(t, "peer", 1)
				written := make(chan error, 1)
				if name == "receives" {
					go func() {
						var err error
						for at := 1; err == nil; at += 1000 {
							_, err = c.Write(source(at, 1000))
						}
						written <- err
					}()
				}
				require.NoError(t, peer.Kill())
				_, err := io.Copy(io.Discard, c)
				requireReset(t, err)
				if name == "receives" {
					requireReset(t, <-written)
				}
				_, err = c.Write(make([]byte, 1))
				requireReset(t, err)
			})
		}
	})
}

// requireReset requires the error of a connection whose peer disappeared without closing it.
func requireReset(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, errReset)
	var timeout interface{ Timeout() bool }
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
}

// TestCloseWhilePeerSends: this side sends 1 MiB and closes while the C program keeps sending, 40
// times. All of it arrives. The C program must not send first: siw ends a connection on which
// something follows the MPA Reply immediately.
func TestCloseWhilePeerSends(t *testing.T) {
	const n, times = 1 << 20, 40
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		for i := range times {
			peer, c := p.meet(t, rsocket.Config{Device: dev}, i%2 == 0, "recv", "1", "both", strconv.Itoa(n-1), "eof")
			sends(t, c, 0, 1, 1)
			receives(t, c, 0, 1)
			if i == 0 {
				p.carries(t, "peer", 1)
			}
			sends(t, c, 1, n-1, n-1)
			require.NoError(t, c.Close())
			peer.Ends(t, 0)
			require.Equal(t, n, peer.await(t, "eof"))
		}
	})
}
