// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLastWords: a side that neither reads nor writes any longer sends DISCONNECT, one that still
// reads SHUTDOWN.
func TestLastWords(t *testing.T) {
	h := newHostile(t)
	shutdown, disconnect := newMessage(opControl, ctrlShutdown), newMessage(opControl, ctrlDisconnect)
	for name, c := range map[string]struct {
		do   func(r *raw, conn *Conn) error
		want []message
	}{
		"CloseWrite": {func(_ *raw, conn *Conn) error { return conn.CloseWrite() }, []message{shutdown}},
		"CloseWrite, CloseRead": {func(_ *raw, conn *Conn) error {
			return errors.Join(conn.CloseWrite(),
				conn.CloseRead())
		},
			[]message{shutdown, disconnect}},
		"CloseRead, CloseWrite": {func(_ *raw, conn *Conn) error {
			return errors.Join(conn.CloseRead(),
				conn.CloseWrite())
		},
			[]message{disconnect}},
		"the peer's SHUTDOWN, CloseWrite": {func(r *raw, conn *Conn) error {
			r.tell(shutdown)
			_, err := conn.Read(make([]byte, 1))
			require.Equal(r.t, io.EOF, err)
			return conn.CloseWrite()
		}, []message{disconnect}},
	} {
		t.Run(name, func(t *testing.T) {
			r, conn := h.dial(t)
			require.NoError(t, c.do(r, conn))
			for _, m := range c.want {
				require.Equal(t, m, r.control())
			}
			conn.alive.heard.Store(false)
			require.Equal(t, c.want[len(c.want)-1] == shutdown, conn.asks(), "nothing goes behind DISCONNECT")
		})
	}
}

// TestCloseWriteDown: CloseWrite fails on a connection that has ended, unless the peer closed it in
// an orderly way.
func TestCloseWriteDown(t *testing.T) {
	h := newHostile(t)
	for name, orderly := range map[string]bool{"orderly": true, "not orderly": false} {
		t.Run(name, func(t *testing.T) {
			r, conn := h.dial(t)
			if orderly {
				r.tell(newMessage(opControl, ctrlDisconnect))
				_, err := conn.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
			}
			require.NoError(t, r.ep.ID().Abort())
			require.Eventually(t, func() bool {
				conn.look()
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.down
			}, 30*time.Second, time.Millisecond)
			for range 2 {
				if err := conn.CloseWrite(); orderly {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, syscall.ECONNRESET)
				}
			}
		})
	}
}

// TestKeepAliveHeard: keep-alive probes a peer only if nothing arrived from it since the last time.
func TestKeepAliveHeard(t *testing.T) {
	h := newHostile(t)
	r, conn := h.dial(t)
	require.NoError(t, conn.SetKeepAlive(false))
	require.False(t, conn.alive.timer.Stop(), "it was stopped")
	for range 2 {
		r.tell(newMessage(opData, 1))
		_, err := conn.Read(make([]byte, 1))
		require.NoError(t, err)
		require.False(t, conn.asks())
		require.True(t, conn.asks())
		require.True(t, conn.asks())
	}
}

// asks reports whether keep-alive, when due, sends something.
func (c *Conn) asks() bool {
	next := func() int { // each posted request changes it
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.queue.next()
	}
	was := next()
	c.alive.tick()
	return next() != was
}

// TestControlRoom: data leaves room in the send queue for two messages without data, and keep-alive
// uses none of it.
func TestControlRoom(t *testing.T) {
	h := newHostile(t)
	_, conn := h.dial(t)
	least := conn.res.cfg.SendQueue
	for range 40 {
		_, err := conn.Write([]byte{1})
		require.NoError(t, err)
		conn.mu.Lock()
		if conn.queue.free == 4 {
			conn.poke()
		}
		least = min(least, conn.queue.free)
		conn.mu.Unlock()
	}
	require.Equal(t, 4, least)
}
