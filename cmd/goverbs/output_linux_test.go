// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// printing are command lines that print to stdout and would otherwise exit with status 0, or wait.
var printing = []string{"--help", "help", "help demo", "rping -h", "devices", "devices -v", "devices --json",
	"demo --clients 1 --ops 20", "demo --json --clients 1 --ops 20", "demo --listen 127.0.0.1:0", "rping -s -d -p 0"}

// TestFullDisk: output that does not fit is a failure, and ends commands that would continue.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	for _, line := range printing {
		t.Run(line, func(t *testing.T) {
			r := clitest.StartOn(t, full, nil, strings.Fields(line)...).End(t)
			require.Equal(t, clitest.Failed, r.Code, r.Stderr)
			require.Regexp(t, `^goverbs.*: write /dev/stdout: no space left on device\n$`, r.Stderr)
		})
	}
	clitest.NothingRuns(t)
}

// TestClosedPipe: a write to a pipe without a reader kills the program with SIGPIPE, and leaves no
// other process behind.
func TestClosedPipe(t *testing.T) {
	for _, line := range printing {
		t.Run(line, func(t *testing.T) {
			r, pipe, err := os.Pipe()
			require.NoError(t, err)
			defer pipe.Close()
			require.NoError(t, r.Close())
			state := clitest.StartOn(t, pipe, nil, strings.Fields(line)...).Wait(t)
			require.Equal(t, syscall.SIGPIPE, state.Sys().(syscall.WaitStatus).Signal())
		})
	}
	clitest.NothingRuns(t)
}

// TestFullNotes: output lost on stderr is a failure too.
func TestFullNotes(t *testing.T) {
	for stderr, want := range map[string]int{"/dev/null": clitest.Done, "/dev/full": clitest.Failed} {
		server := clitest.StartCommand(t,
			exec.Command("sh", "-c", `exec "$0" rping -s -d -p 0 2>"$1"`, clitest.Program, stderr))
		port := server.Stdout.AwaitMatch(t, `listening on \S*:(\d+)`)[1]
		r := clitest.Run(t, "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "2")
		require.Equal(t, clitest.Done, r.Code, r.Stderr)
		require.Equal(t, want, server.End(t).Code, stderr)
	}
}
