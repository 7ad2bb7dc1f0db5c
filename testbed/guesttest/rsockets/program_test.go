// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"bytes"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is a process of a C program. It is killed at the end of the test if it still runs.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer // stdout and stderr, complete when done is closed
	done chan struct{}
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the outcome is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s: %v\n%s", p.cmd, p.cmd.ProcessState, &p.out)
		}
	})
	return p
}

// runs requires that the program ends with status 0.
func (p *program) runs() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		require.FailNow(p.t, "has not ended", "%s", p.cmd)
	}
	require.Zero(p.t, p.cmd.ProcessState.ExitCode(), "%s: %s", p.cmd, &p.out)
}

// freePort returns a port that TCP does not use.
func freePort(t *testing.T, host string) string {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
}
