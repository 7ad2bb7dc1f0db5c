// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package clitest

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within is how long a process may run on after a signal.
const within = 10 * time.Second

// Interrupt sends a signal, and asserts that the process ends in time with that signal's exit
// status and leaves no other process behind.
func (r *Running) Interrupt(t *testing.T, sig syscall.Signal) Outcome {
	t.Helper()
	r.Begun = time.Now()
	require.NoError(t, r.Signal(sig))
	out := r.End(t)
	require.Equal(t, 128+int(sig), out.Code, out.Stderr)
	require.Less(t, out.Took, within)
	require.Contains(t, out.Stderr, "ended by signal")
	return out
}

// Stop stops a process and returns once it has stopped.
func Stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	}, 60*time.Second, 10*time.Millisecond, "process %d does not stop", pid)
}
