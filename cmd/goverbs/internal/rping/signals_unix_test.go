// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package rping

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestRPingSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Run("server that waits", func(t *testing.T) {
				s, _ := rpingServer(t)
				s.Interrupt(t, sig)
			})
			t.Run("client, then persistent server", func(t *testing.T) {
				s, port := rpingServer(t, "-P")
				clients := make([]*clitest.Running, 3)
				for i := range clients {
					clients[i] = clitest.Start(t, "rping", "-cvV", "-a", "127.0.0.1", "-p", port)
					clients[i].Stdout.Await(t, "ping data")
				}
				r := clients[0].Interrupt(t, sig)
				require.NotContains(t, r.Stderr, "state")
				require.Regexp(t, statistics, r.Stdout, "also when a signal ends it")
				s.Stderr.Await(t, "server DISCONNECT EVENT...")
				r = s.Interrupt(t, sig)
				require.Contains(t, r.Stderr, "goverbs rping: ended by signal")
				for _, c := range clients[1:] {
					r := c.End(t)
					require.Equal(t, clitest.Failed, r.Code)
					require.Contains(t, r.Stderr, "client DISCONNECT EVENT...")
				}
			})
		})
	}
}

// A hung peer does not delay the shutdown.
func TestRPingSignalWithHungPeer(t *testing.T) {
	s, port := rpingServer(t, "-P")
	c := clitest.Start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.Stdout.Await(t, "ping data")
	clitest.Stop(t, s.Cmd.Process.Pid)
	c.Interrupt(t, syscall.SIGINT)
	require.NoError(t, s.Signal(syscall.SIGCONT))

	c = clitest.Start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.Stdout.Await(t, "ping data")
	clitest.Stop(t, c.Cmd.Process.Pid)
	s.Interrupt(t, syscall.SIGINT)
	require.NoError(t, c.Signal(syscall.SIGCONT))
	require.Equal(t, clitest.Failed, c.End(t).Code)
	clitest.NothingRuns(t)
}
