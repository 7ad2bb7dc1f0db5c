// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw/usiwtest"
)

// bubble runs a test in a bubble, where waiting takes no real time and a call that waits forever
// fails the test.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// closeWriter is a net.Conn with the additional method of a TCP connection.
type closeWriter interface {
	net.Conn
	CloseWrite() error
}

// ends makes a connection on a wire and returns its two ends, the dialler's and the listener's.
func ends(t *testing.T, w *usiwtest.Wire) (dialer, listener closeWriter, link *usiwtest.Link) {
	t.Helper()
	ln, err := w.Listen(t.Context(), "tcp", "here:0")
	require.NoError(t, err)
	defer ln.Close()
	d, err := w.DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	l, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { d.Close(); l.Close() })
	links := w.Links()
	return d.(closeWriter), l.(closeWriter), links[len(links)-1]
}

// write writes all of b.
func write(t *testing.T, c net.Conn, b string) {
	t.Helper()
	n, err := c.Write([]byte(b))
	require.NoError(t, err)
	require.Equal(t, len(b), n)
}

// read reads exactly n bytes.
func read(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return string(b)
}

// once calls Read once.
func once(c net.Conn) (string, error) {
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// quiet requires that a Read finds nothing for a while.
func quiet(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	s, err := once(c)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "%q was read", s)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

// isReset requires that both directions of an end fail with ECONNRESET.
func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := once(c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = c.Write([]byte{1})
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestConnBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		write(t, a, "to the listener")
		write(t, b, "and back")
		require.EqualValues(t, 15, link.ToListener.Written())
		require.EqualValues(t, 8, link.ToDialer.Written())
		require.Equal(t, "to the listener", read(t, b, 15))
		require.Equal(t, "and back", read(t, a, 8))

		require.Equal(t, a.LocalAddr(), b.RemoteAddr())
		require.Equal(t, a.RemoteAddr(), b.LocalAddr())
		require.Equal(t, "tcp", a.LocalAddr().Network())
		require.True(t, strings.HasPrefix(b.LocalAddr().String(), "here:"), b.LocalAddr().String())

		n, err := a.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = a.Write(nil)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

// TestConnBuffer: a direction holds a limited number of bytes; then the writer waits for the
// reader.
func TestConnBuffer(t *testing.T) {
	for _, size := range []int{0, 10} {
		bubble(t, func(t *testing.T) {
			w := usiwtest.NewWire()
			w.Buffer = size
			want := size
			if size == 0 {
				want = usiwtest.DefaultBuffer
			}
			a, b, link := ends(t, w)
			data := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
			done := make(chan error, 1)
			go func() {
				n, err := a.Write(data)
				if err == nil && n != len(data) {
					err = io.ErrShortWrite
				}
				done <- errors.Join(err, a.CloseWrite())
			}()
			synctest.Wait()
			require.EqualValues(t, want, link.ToListener.Written())
			require.Equal(t, string(data[:7]), read(t, b, 7))
			synctest.Wait()
			require.EqualValues(t, want+7, link.ToListener.Written())
			rest, err := io.ReadAll(b)
			require.NoError(t, err)
			require.True(t, bytes.Equal(data[7:], rest))
			require.NoError(t, <-done)
		})
	}
}

func TestConnHalfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, _ := ends(t, usiwtest.NewWire())
		write(t, a, "last words")
		require.NoError(t, a.CloseWrite())
		require.NoError(t, a.CloseWrite())
		_, err := a.Write([]byte{1})
		require.ErrorIs(t, err, syscall.EPIPE)
		require.Equal(t, "last words", read(t, b, 10))
		for range 2 {
			_, err = once(b)
			require.Equal(t, io.EOF, err)
		}
		write(t, b, "the other way goes on")
		require.Equal(t, "the other way goes on", read(t, a, 21))
	})
}

func TestConnClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		t.Log("what was written before is delivered, then the end")
		a, b, _ := ends(t, usiwtest.NewWire())
		write(t, a, "last words")
		require.NoError(t, a.Close())
		require.Equal(t, "last words", read(t, b, 10))
		_, err := once(b)
		require.Equal(t, io.EOF, err)

		t.Log("a closed end is of no use")
		for _, f := range []func() error{a.Close, a.CloseWrite, func() error { return a.SetDeadline(time.Time{}) },
			func() error { _, err := once(a); return err }, func() error { _, err := a.Write([]byte{1}); return err }} {
			require.ErrorIs(t, f(), net.ErrClosed)
		}

		t.Log("what is written to it brings a reset")
		_, err = b.Write([]byte{1})
		require.ErrorIs(t, err, syscall.ECONNRESET)
		isReset(t, b)
		require.ErrorIs(t, b.CloseWrite(), syscall.ENOTCONN)

		t.Log("and so does a close with unread bytes")
		a, b, _ = ends(t, usiwtest.NewWire())
		write(t, a, "never read")
		write(t, b, "lost")
		require.NoError(t, a.Close())
		isReset(t, b)

		t.Log("calls in progress end")
		a, b, _ = ends(t, usiwtest.NewWire())
		done := make(chan error, 2)
		go func() { _, err := once(a); done <- err }()
		go func() { _, err := a.Write(make([]byte, 1<<20)); done <- err }()
		synctest.Wait()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-done, net.ErrClosed)
		require.ErrorIs(t, <-done, net.ErrClosed)
		require.NoError(t, b.Close())
	})
}

func TestConnDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, _ := ends(t, usiwtest.NewWire())
		full := make([]byte, usiwtest.DefaultBuffer)
		_, err := a.Write(full)
		require.NoError(t, err)
		for _, op := range []struct {
			name string
			do   func() error
			set  func(time.Time) error
			undo func(time.Time) error // sets the deadline of the other kind
		}{
			{"read", func() error { _, err := once(a); return err }, a.SetReadDeadline, a.SetWriteDeadline},
			{"write", func() error { _, err := a.Write([]byte{1}); return err }, a.SetWriteDeadline, a.SetReadDeadline},
			{"both", func() error { _, err := once(a); return err }, a.SetDeadline, a.SetWriteDeadline},
		} {
			began := time.Now()
			require.NoError(t, op.set(began.Add(time.Minute)))
			require.NoError(t, op.undo(time.Time{}))
			err := op.do()
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, op.name)
			var ne net.Error
			require.ErrorAs(t, err, &ne)
			require.True(t, ne.Timeout())
			require.Equal(t, time.Minute, time.Since(began), op.name)
			require.ErrorIs(t, op.do(), os.ErrDeadlineExceeded, "it stays passed")
			require.Equal(t, time.Minute, time.Since(began), op.name)

			t.Log("a call in progress notices a new deadline, one in the past too")
			require.NoError(t, op.set(time.Time{}))
			done := make(chan error, 1)
			go func() { done <- op.do() }()
			synctest.Wait()
			require.Empty(t, done)
			require.NoError(t, op.set(time.Now().Add(time.Hour)))
			synctest.Wait()
			require.Empty(t, done)
			require.NoError(t, op.set(time.Unix(1, 0)))
			require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
			require.Equal(t, time.Minute, time.Since(began), op.name)

			t.Log("one that was replaced does nothing")
			require.NoError(t, op.set(time.Now().Add(time.Second)))
			require.NoError(t, op.set(time.Now().Add(time.Hour)))
			require.ErrorIs(t, op.do(), os.ErrDeadlineExceeded)
			require.Equal(t, time.Minute+time.Hour, time.Since(began), op.name)
			require.NoError(t, op.set(time.Time{}))
		}

		t.Log("what a write has got rid of counts")
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		go func() {
			time.Sleep(500 * time.Millisecond)
			_, _ = io.ReadFull(b, make([]byte, 100))
		}()
		n, err := a.Write(make([]byte, 1000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 100, n)
	})
}

func TestListen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := usiwtest.NewWire()
		all, err := w.Listen(t.Context(), "tcp", ":7306")
		require.NoError(t, err)
		one, err := w.Listen(t.Context(), "tcp", "one:7306")
		require.NoError(t, err)
		require.Equal(t, "one:7306", one.Addr().String())
		_, err = w.Listen(t.Context(), "tcp", "one:7306")
		require.ErrorIs(t, err, syscall.EADDRINUSE)

		t.Log("the listener of a host goes before the one of all")
		for _, c := range []struct {
			address string
			ln      net.Listener
		}{{"one:7306", one}, {"two:7306", all}} {
			d, err := w.DialContext(t.Context(), "tcp", c.address)
			require.NoError(t, err)
			l, err := c.ln.Accept()
			require.NoError(t, err)
			require.Equal(t, c.address, l.LocalAddr().String())
			require.Equal(t, c.address, d.RemoteAddr().String())
			require.NoError(t, d.Close())
			require.NoError(t, l.Close())
		}
		require.Len(t, w.Links(), 2)

		t.Log("Close ends Accept, and connections that nobody has accepted")
		d, err := w.DialContext(t.Context(), "tcp", "one:7306")
		require.NoError(t, err)
		require.NoError(t, one.Close())
		isReset(t, d)
		require.NoError(t, d.Close())
		done := make(chan error)
		go func() { _, err := all.Accept(); done <- err }()
		synctest.Wait()
		require.NoError(t, all.Close())
		require.ErrorIs(t, <-done, net.ErrClosed)
		require.ErrorIs(t, all.Close(), net.ErrClosed)
		_, err = w.DialContext(t.Context(), "tcp", "two:7306")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		again, err := w.Listen(t.Context(), "tcp", ":7306")
		require.NoError(t, err)
		require.NoError(t, again.Close())
	})
}

func TestBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := usiwtest.NewWire()
		ln, err := w.Listen(t.Context(), "tcp", "here:1")
		require.NoError(t, err)
		n := 0
		for ; err == nil; n++ {
			_, err = w.DialContext(t.Context(), "tcp", "here:1")
		}
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Greater(t, n, 100)
		_, err = ln.Accept()
		require.NoError(t, err)
		_, err = w.DialContext(t.Context(), "tcp", "here:1")
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	})
}

func TestBadAddresses(t *testing.T) {
	w := usiwtest.NewWire()
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx              context.Context
		network, address string
		want             error
	}{
		{t.Context(), "tcp", "", new(net.AddrError)},
		{t.Context(), "tcp", "host", new(net.AddrError)},
		{t.Context(), "tcp", "host:", new(net.AddrError)},
		{t.Context(), "tcp", "host:http", new(net.AddrError)},
		{t.Context(), "tcp", "host:65536", new(net.AddrError)},
		{t.Context(), "tcp", "host:01", new(net.AddrError)},
		{t.Context(), "tcp", "host:-1", new(net.AddrError)},
		{t.Context(), "udp", "host:1", net.UnknownNetworkError("udp")},
		{done, "tcp", "host:1", context.Canceled},
	} {
		_, lerr := w.Listen(c.ctx, c.network, c.address)
		_, derr := w.DialContext(c.ctx, c.network, c.address)
		for _, err := range []error{lerr, derr} {
			var oe *net.OpError
			require.ErrorAs(t, err, &oe, c.address)
			require.Equal(t, c.address, oe.Addr.String())
			if _, ok := c.want.(*net.AddrError); ok {
				var ae *net.AddrError
				require.ErrorAs(t, err, &ae, c.address)
				require.Equal(t, c.address, ae.Addr)
				continue
			}
			require.ErrorIs(t, err, c.want)
		}
	}
}
