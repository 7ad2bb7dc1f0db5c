// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRPingSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Run("server that waits", func(t *testing.T) {
				s, _ := rpingServer(t)
				s.interrupt(t, sig)
			})
			t.Run("client, then persistent server", func(t *testing.T) {
				s, port := rpingServer(t, "-P")
				clients := make([]*running, 3)
				for i := range clients {
					clients[i] = start(t, "rping", "-cvV", "-a", "127.0.0.1", "-p", port)
					clients[i].stdout.await(t, "ping data")
				}
				r := clients[0].interrupt(t, sig)
				require.NotContains(t, r.stderr, "state")
				s.stderr.await(t, "server DISCONNECT EVENT...")
				r = s.interrupt(t, sig)
				require.Contains(t, r.stderr, "goverbs rping: ended by signal")
				for _, c := range clients[1:] {
					r := c.end(t)
					require.Equal(t, exitFailed, r.code)
					require.Contains(t, r.stderr, "client DISCONNECT EVENT...")
				}
			})
		})
	}
}

// A peer that hangs holds nobody up.
func TestRPingSignalWithHungPeer(t *testing.T) {
	s, port := rpingServer(t, "-P")
	c := start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.stdout.await(t, "ping data")
	stop(t, s.cmd.Process.Pid)
	c.interrupt(t, syscall.SIGINT)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGCONT))

	c = start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.stdout.await(t, "ping data")
	stop(t, c.cmd.Process.Pid)
	s.interrupt(t, syscall.SIGINT)
	require.NoError(t, c.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, exitFailed, c.end(t).code)
	nothingRuns(t)
}
