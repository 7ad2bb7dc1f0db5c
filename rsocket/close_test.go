// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
)

// text returns n bytes, each different from its neighbours.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

// send writes p in the background and delivers the error.
func send(c *rsocket.Conn, p []byte) <-chan error {
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(p)
		sent <- err
	}()
	return sent
}

// TestHalfClose: after CloseWrite the peer reads to io.EOF and can still answer, in both roles.
func TestHalfClose(t *testing.T) {
	c1, c2 := pair(t)
	for _, c := range []struct {
		name     string
		from, to *rsocket.Conn
	}{{"first", c1, c2}, {"second", c2, c1}} {
		data := text(300_000)
		sent := send(c.from, data)
		got := make([]byte, len(data))
		_, err := io.ReadFull(c.to, got)
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.True(t, bytes.Equal(data, got))
		require.NoError(t, c.from.CloseWrite())
		require.NoError(t, c.from.CloseWrite(), "again")
		n, err := c.to.Read(got)
		require.Equal(t, 0, n)
		require.Equal(t, io.EOF, err, c.name)
		_, err = c.from.Write(got)
		require.ErrorIs(t, err, syscall.EPIPE)
	}
	require.NoError(t, c1.Close())
	require.NoError(t, c2.Close())
}

// TestCloseWriteWakesWriter: CloseWrite unblocks a Write that waits for the peer.
func TestCloseWriteWakesWriter(t *testing.T) {
	c1, _ := pair(t)
	sent := send(c1, make([]byte, 1<<20)) // more than the peer's buffer
	waitFor(t, func() bool { return rsocket.Waiting(c1) })
	require.NoError(t, c1.CloseWrite())
	require.ErrorIs(t, <-sent, syscall.EPIPE)
}

// TestCloseRead: Reads return, arriving data is dropped, and the peer is not blocked.
func TestCloseRead(t *testing.T) {
	c1, c2 := pair(t)
	// so that nothing in flight could wake the reader
	for _, c := range [][2]*rsocket.Conn{{c1, c2}, {c2, c1}} {
		require.NoError(t, <-send(c[0], []byte{1}))
		_, err := c[1].Read(make([]byte, 1))
		require.NoError(t, err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := c2.Read(make([]byte, 1))
		got <- err
	}()
	waitFor(t, func() bool { return rsocket.Waiting(c2) })
	require.NoError(t, c2.CloseRead())
	require.Equal(t, io.EOF, <-got)
	sent := send(c1, make([]byte, 1<<20))
	back := make(chan error, 1)
	go func() { // a goroutine must be inside, or keep-alive must poll
		_, err := c2.Write(make([]byte, 1<<20))
		back <- err
	}()
	require.NoError(t, <-sent)
	_, err := io.ReadFull(c1, make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, <-back)
}

// TestCloseDelivers: everything written before Close arrives, even if the other side keeps sending
// and the closing side does not read.
func TestCloseDelivers(t *testing.T) {
	for range 5 {
		c1, c2 := pair(t)
		data := text(1 << 20)
		noise := make(chan error, 1)
		go func() {
			for {
				if _, err := c2.Write(data[:10_000]); err != nil {
					noise <- err
					return
				}
			}
		}()
		closed := make(chan error, 1)
		go func() {
			_, err := c1.Write(data)
			closed <- errors.Join(err, c1.Close())
		}()
		got, err := io.ReadAll(c2)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got), "%d bytes", len(got))
		require.NoError(t, <-closed)
		require.ErrorIs(t, <-noise, syscall.ECONNRESET)
		require.NoError(t, c2.Close())
	}
}

// TestLinger0: Close aborts the connection, and the peer sees that this was not an orderly close.
func TestLinger0(t *testing.T) {
	c1, c2 := pair(t)
	_, err := c1.Write([]byte("before"))
	require.NoError(t, err)
	got := make([]byte, 6)
	_, err = io.ReadFull(c2, got)
	require.NoError(t, err)
	require.NoError(t, c1.SetLinger(0))
	require.NoError(t, c1.Close())
	_, err = c2.Read(got)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = c2.Write(got)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// TestLingerWaits: with a positive time, Close returns when the peer has answered, although no
// goroutine is inside there until it closes.
func TestLingerWaits(t *testing.T) {
	c1, c2 := pair(t)
	require.NoError(t, c1.SetLinger(30))
	closed := make(chan error, 1)
	go func() { closed <- c1.Close() }()
	_, err := c2.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	require.NoError(t, <-closed)
	select {
	case <-rsocket.Gone(c1):
	default:
		t.Fatal("Close returned before the connection had ended")
	}
}

// TestAfterClose: every call on a closed connection, including pending ones, fails with
// net.ErrClosed.
func TestAfterClose(t *testing.T) {
	c1, _ := pair(t)
	inside := make(chan error, 2)
	go func() {
		_, err := c1.Read(make([]byte, 1))
		inside <- err
	}()
	go func() {
		_, err := c1.Write(make([]byte, 1<<20))
		inside <- err
	}()
	waitFor(t, func() bool { return rsocket.BothWaiting(c1) })
	require.NoError(t, c1.Close())
	require.ErrorIs(t, <-inside, net.ErrClosed)
	require.ErrorIs(t, <-inside, net.ErrClosed)
	for name, f := range map[string]func() error{
		"Close":      c1.Close,
		"CloseRead":  c1.CloseRead,
		"CloseWrite": c1.CloseWrite,
		"Read":       func() error { _, err := c1.Read(make([]byte, 1)); return err },
		"Write":      func() error { _, err := c1.Write(make([]byte, 1)); return err },
		"Write 0":    func() error { _, err := c1.Write(nil); return err },
		"Read 0":     func() error { _, err := c1.Read(nil); return err },
		"ReadFrom":   func() error { _, err := c1.ReadFrom(bytes.NewReader([]byte("x"))); return err },
		"WriteTo":    func() error { _, err := c1.WriteTo(io.Discard); return err },
		"Buffers":    func() error { _, err := c1.WriteBuffers(&net.Buffers{{1}}); return err },
		"deadline":   func() error { return c1.SetDeadline(time.Now()) },
		"linger":     func() error { return c1.SetLinger(1) },
		"keep-alive": func() error { return c1.SetKeepAlive(true) },
	} {
		err := f()
		require.ErrorIs(t, err, net.ErrClosed, name)
		var op *net.OpError
		require.ErrorAs(t, err, &op, name)
	}
}

// TestDeadlineHandsOver: the goroutine that polls for both directions returns at its deadline, and
// the one that waits for the other direction continues.
func TestDeadlineHandsOver(t *testing.T) {
	c1, c2 := pair(t)
	read := make(chan error, 1)
	go func() {
		_, err := c1.Read(make([]byte, 1))
		read <- err
	}()
	waitFor(t, func() bool { return rsocket.Waiting(c1) })
	data := text(1 << 20)
	sent := send(c1, data)
	waitFor(t, func() bool { return rsocket.BothWaiting(c1) })
	require.NoError(t, c1.SetReadDeadline(time.Now()))
	err := <-read
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var ne net.Error
	require.ErrorAs(t, err, &ne)
	require.True(t, ne.Timeout())
	got := make([]byte, len(data))
	_, err = io.ReadFull(c2, got)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(data, got))
}

// TestPeerGone: if the underlying connection ends without DISCONNECT, that is not the end of the
// stream.
func TestPeerGone(t *testing.T) {
	c1, c2 := pair(t)
	// The passive side sends nothing before the active side has (RFC 5044, section 7.1.2), and
	// Disconnect drops what was not sent.
	_, err := c1.Write([]byte("first words"))
	require.NoError(t, err)
	_, err = io.ReadFull(c2, make([]byte, 11))
	require.NoError(t, err)
	_, err = c2.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, c2.ID().Disconnect())
	got := make([]byte, 10)
	_, err = io.ReadFull(c1, got)
	require.NoError(t, err, "what came before can be read")
	_, err = c1.Read(got)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NotErrorIs(t, err, io.EOF)
}

// waitFor waits until cond holds.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 30*time.Second, time.Millisecond)
}
