// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within is how long a process may live after a signal.
const within = 10 * time.Second

// interrupt sends a signal, and asserts that the process ends in time, with exit status 1, and leaves no other behind.
func (r *running) interrupt(t *testing.T, sig syscall.Signal) outcome {
	t.Helper()
	r.begun = time.Now()
	require.NoError(t, r.cmd.Process.Signal(sig))
	out := r.end(t)
	require.Equal(t, exitFailed, out.code, out.stderr)
	require.Less(t, out.took, within)
	require.Contains(t, out.stderr, "ended by signal")
	return out
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Run("listener that waits", func(t *testing.T) {
				l, _ := listen(t)
				l.interrupt(t, sig)
				nothingRuns(t)
			})
			t.Run("connecting half that waits", func(t *testing.T) {
				c := start(t, "demo", "--connect", "127.0.0.1:1")
				c.stderr.await(t, "trying for")
				c.interrupt(t, sig)
			})
			t.Run("at once", func(t *testing.T) {
				d := start(t, "demo")
				d.stdout.await(t, "connect")
				d.interrupt(t, sig)
				nothingRuns(t)
			})
			t.Run("contending clients", func(t *testing.T) {
				d := start(t, "demo", "--ops", "100000")
				d.stdout.await(t, "\nlock") // a line of progress
				out := d.interrupt(t, sig)
				require.NotContains(t, out.stdout, "verified")
				nothingRuns(t)
			})
			t.Run("with JSON", func(t *testing.T) {
				d := start(t, "demo", "--json", "--ops", "100000")
				require.Eventually(t, func() bool { return len(childrenOf(t, d.cmd.Process.Pid)) == 9 }, 60*time.Second, 20*time.Millisecond)
				out := d.interrupt(t, sig)
				require.False(t, decodeResult(t, out.stdout).OK)
				nothingRuns(t)
			})
		})
	}
}

// childrenOf returns the processes that a demo has started, the listening one first. Their numbers do not tell: they wrap
// around.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	require.NoError(t, err)
	var pids []int
	for sc := bufio.NewScanner(strings.NewReader(string(out))); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 3 || f[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(f[0])
		require.NoError(t, err)
		if slices.Contains(f, "--listen") {
			pids = slices.Insert(pids, 0, child)
		} else {
			pids = append(pids, child)
		}
	}
	return pids
}

// stop stops a process, and returns when it stands still.
func stop(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		return err == nil && strings.HasPrefix(string(state), "T")
	}, 60*time.Second, 10*time.Millisecond, "process %d does not stop", pid)
}

// A listening process that hangs does not hold up the end.
func TestSignalWithHungServer(t *testing.T) {
	d := start(t, "demo", "--ops", "100000")
	d.stdout.await(t, "\nlock")
	pids := childrenOf(t, d.cmd.Process.Pid)
	require.Len(t, pids, 9)
	stop(t, pids[0])
	d.interrupt(t, syscall.SIGINT)
	nothingRuns(t)
}

// Nor does a peer on another host that hangs.
func TestSignalWithHungPeer(t *testing.T) {
	l, address := listen(t)
	c := start(t, "demo", "--connect", address, "--ops", "100000")
	c.stdout.await(t, "\nlock")
	stop(t, l.cmd.Process.Pid)
	c.interrupt(t, syscall.SIGTERM)
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGCONT))
	out := l.end(t)
	require.Equal(t, exitFailed, out.code)
	require.Contains(t, out.stderr, "step lock: ")
	nothingRuns(t)
}

// The children notice that their parent is gone, however it went.
func TestParentKilled(t *testing.T) {
	d := start(t, "demo", "--ops", "100000")
	d.stdout.await(t, "\nlock")
	require.NoError(t, d.cmd.Process.Kill())
	_ = d.cmd.Wait()
	nothingRuns(t)
}

// One of the processes dies: the demo fails, says which, and ends the others.
func TestChildKilled(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
		pick func(pids []int) int
	}{
		{"listening process", "listening process: signal: killed", func(pids []int) int { return pids[0] }},
		{"client process", ": signal: killed", func(pids []int) int { return pids[8] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := start(t, "demo", "--ops", "100000")
			d.stdout.await(t, "\nlock")
			pids := childrenOf(t, d.cmd.Process.Pid)
			require.Len(t, pids, 9)
			require.NoError(t, syscall.Kill(c.pick(pids), syscall.SIGKILL))
			out := d.end(t)
			require.Equal(t, exitFailed, out.code)
			require.Contains(t, out.stderr, c.want)
			require.Contains(t, out.stderr, c.name)
			require.Contains(t, out.stderr, "not verified: lock; 2 steps were not reached")
			nothingRuns(t)
		})
	}
}

// A client process does its job by what it reads, and ends with its stdin.
func TestClientProcess(t *testing.T) {
	run := func(stdin io.Reader) outcome {
		r := &running{cmd: exec.Command(program, demoClientName), stdout: new(transcript), stderr: new(transcript)}
		r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = stdin, r.stdout, r.stderr
		require.NoError(t, r.cmd.Start())
		return r.end(t)
	}
	out := run(strings.NewReader(""))
	require.Equal(t, exitFailed, out.code)
	require.Contains(t, out.stderr, "no job on stdin")

	l, address := listen(t)
	job, err := json.Marshal(clientJob{Device: "usiw0", Address: address, Token: 1, Ops: 1})
	require.NoError(t, err)
	stdin, w, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	_, err = fmt.Fprintf(w, "%s\n", job)
	require.NoError(t, err)
	out = run(stdin) // which stays open
	require.NoError(t, w.Close())
	require.Equal(t, exitFailed, out.code)
	require.Contains(t, out.stderr, "not a client of the demo in progress")
	l.interrupt(t, syscall.SIGINT)
	if runtime.GOOS == "linux" {
		nothingRuns(t)
	}
}
