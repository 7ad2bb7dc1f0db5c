// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package demo

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

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Run("listener that waits", func(t *testing.T) {
				l, _ := listen(t)
				l.Interrupt(t, sig)
				clitest.NothingRuns(t)
			})
			t.Run("connecting half that waits", func(t *testing.T) {
				c := clitest.Start(t, "demo", "--connect", "127.0.0.1:1")
				c.Stderr.Await(t, "trying for")
				c.Interrupt(t, sig)
			})
			t.Run("at once", func(t *testing.T) {
				d := clitest.Start(t, "demo")
				d.Stdout.Await(t, "connect")
				d.Interrupt(t, sig)
				clitest.NothingRuns(t)
			})
			t.Run("contending clients", func(t *testing.T) {
				d := clitest.Start(t, "demo", "--ops", "100000")
				d.Stdout.Await(t, "\nlock") // a progress line
				out := d.Interrupt(t, sig)
				require.NotContains(t, out.Stdout, "verified")
				clitest.NothingRuns(t)
			})
			t.Run("with JSON", func(t *testing.T) {
				d := clitest.Start(t, "demo", "--json", "--ops", "100000")
				require.Eventually(t, func() bool { return len(childrenOf(t, d.Cmd.Process.Pid)) == 9 }, 60*time.Second,
					20*time.Millisecond)
				out := d.Interrupt(t, sig)
				require.False(t, decodeResult(t, out.Stdout).OK)
				clitest.NothingRuns(t)
			})
		})
	}
}

// childrenOf returns the processes that a demo started, the listening one first. PIDs do not show
// the order, because they wrap around.
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

// A hung listening process does not delay the shutdown.
func TestSignalWithHungServer(t *testing.T) {
	d := clitest.Start(t, "demo", "--ops", "100000")
	d.Stdout.Await(t, "\nlock")
	pids := childrenOf(t, d.Cmd.Process.Pid)
	require.Len(t, pids, 9)
	clitest.Stop(t, pids[0])
	d.Interrupt(t, syscall.SIGINT)
	clitest.NothingRuns(t)
}

// Nor does a hung peer on another host.
func TestSignalWithHungPeer(t *testing.T) {
	l, address := listen(t)
	c := clitest.Start(t, "demo", "--connect", address, "--ops", "100000")
	c.Stdout.Await(t, "\nlock")
	clitest.Stop(t, l.Cmd.Process.Pid)
	c.Interrupt(t, syscall.SIGTERM)
	require.NoError(t, l.Signal(syscall.SIGCONT))
	out := l.End(t)
	require.Equal(t, clitest.Failed, out.Code)
	require.Contains(t, out.Stderr, "step lock: ")
	clitest.NothingRuns(t)
}

// The children notice that their parent is gone, whatever killed it.
func TestParentKilled(t *testing.T) {
	d := clitest.Start(t, "demo", "--ops", "100000")
	d.Stdout.Await(t, "\nlock")
	require.NoError(t, d.Kill())
	clitest.NothingRuns(t)
}

// If one of the processes dies, the demo fails, says which one, and ends the others.
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
			d := clitest.Start(t, "demo", "--ops", "100000")
			d.Stdout.Await(t, "\nlock")
			pids := childrenOf(t, d.Cmd.Process.Pid)
			require.Len(t, pids, 9)
			require.NoError(t, syscall.Kill(c.pick(pids), syscall.SIGKILL))
			out := d.End(t)
			require.Equal(t, clitest.Failed, out.Code)
			require.Contains(t, out.Stderr, c.want)
			require.Contains(t, out.Stderr, c.name)
			require.Contains(t, out.Stderr, "not verified: lock; 2 steps were not reached")
			clitest.NothingRuns(t)
		})
	}
}

// A client process takes its job from stdin, and exits at the end of stdin.
func TestClientProcess(t *testing.T) {
	run := func(stdin io.Reader) clitest.Outcome {
		cmd := exec.Command(clitest.Program, ClientCommand)
		cmd.Stdin = stdin
		return clitest.StartCommand(t, cmd).End(t)
	}
	out := run(strings.NewReader(""))
	require.Equal(t, clitest.Failed, out.Code)
	require.Contains(t, out.Stderr, "no job on stdin")

	l, address := listen(t)
	job, err := json.Marshal(clientJob{Address: address, Token: 1, Ops: 1})
	require.NoError(t, err)
	stdin, w, err := os.Pipe()
	require.NoError(t, err)
	defer stdin.Close()
	_, err = fmt.Fprintf(w, "%s\n", job)
	require.NoError(t, err)
	out = run(stdin) // which stays open
	require.NoError(t, w.Close())
	require.Equal(t, clitest.Failed, out.Code)
	require.Contains(t, out.Stderr, "not a client of the demo in progress")
	l.Interrupt(t, syscall.SIGINT)
	if runtime.GOOS == "linux" {
		clitest.NothingRuns(t)
	}
}
