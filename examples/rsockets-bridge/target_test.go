// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listenAt listens for a bridge to connect to: on a TCP port, or on a unix socket. It also returns
// the URL.
func listenAt(t *testing.T, scheme string) (net.Listener, string) {
	t.Helper()
	address := "127.0.0.1:0"
	if scheme == schemeUnix {
		address = filepath.Join(t.TempDir(), "target")
	}
	ln, err := net.Listen(scheme, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	return ln, scheme + "://" + ln.Addr().String()
}

// serveEach serves each connection of a listener until the end of the test, which waits for them.
func serveEach(t *testing.T, ln net.Listener, serve func(c stream)) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(limit))
				serve(c.(stream))
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
}

// echo sends back what it receives.
func echo(c stream) { _, _ = io.Copy(c, c) }

// acceptOne accepts a connection.
func acceptOne(t *testing.T, ln net.Listener) stream {
	t.Helper()
	require.NoError(t, ln.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(limit)))
	c, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return c.(stream)
}

// nobody returns a TCP address on which nothing is listening, at least not yet.
func nobody(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	return ln.Addr().String()
}

// exchange has the peer echo a text.
func exchange(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}
