// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// After a signal no new connections are accepted, and open ones can finish.
func TestDrain(t *testing.T) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			ln, url := listenAt(t, f.scheme)
			serveEach(t, ln, echo)
			b := f.start(t, url)
			c := b.dial(t)
			exchange(t, c, "before")
			require.NoError(t, b.Signal(syscall.SIGTERM))
			require.Contains(t, b.await(t, "msg=draining"), "active=1")
			e, err := parseEndpoint(b.url(t))
			require.NoError(t, err)
			if late, err := net.DialTimeout(e.scheme, e.address, limit); err == nil {
				late.Close()
				require.Fail(t, "it still listens")
			}
			exchange(t, c, "after")
			require.NoError(t, c.CloseWrite())
			_, err = c.Read(make([]byte, 1))
			require.EqualError(t, err, "EOF")
			b.Ends(t, exitDone)
			if e.scheme == schemeUnix {
				require.NoFileExists(t, e.address)
			}
		})
	}
}

// Connections still open after --drain-timeout are aborted, which is not an error.
func TestDrainTimeout(t *testing.T) {
	ln, url := listenAt(t, schemeTCP)
	serveEach(t, ln, echo)
	front, _ := chain(t, "usiw0", "127.0.0.1", url, "--drain-timeout", "100ms")
	c := front.dial(t)
	exchange(t, c, "before")
	require.NoError(t, front.Signal(syscall.SIGINT))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	front.Ends(t, exitDone)
	require.Contains(t, front.await(t, "msg=aborted"), "drain-timeout")
}

// A second signal exits the program immediately, with status 1.
func TestSecondSignal(t *testing.T) {
	ln, url := listenAt(t, schemeTCP)
	serveEach(t, ln, echo)
	b := startBridge(t, "tcp://127.0.0.1:0", url, "--drain-timeout", "1h")
	c := b.dial(t)
	exchange(t, c, "before")
	require.NoError(t, b.Signal(syscall.SIGTERM))
	b.await(t, "msg=draining")
	require.NoError(t, b.Signal(syscall.SIGTERM))
	b.Ends(t, exitFailed)
}
