// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// program is a process of a C program. It is killed at the end of the test if it still runs.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Writer
	out  output // stdout and stderr
	done chan struct{}
}

// output is what a program has printed. It may be read while the program runs.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	return run(t, exec.Command(name, args...))
}

// preload is the library with which programs that use sockets use rsockets instead, if they can.
const preload = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"

// startPreloaded starts a program that was written for TCP.
func startPreloaded(t *testing.T, name string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), preload)
	return run(t, cmd)
}

func run(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{t: t, cmd: cmd, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.in = in
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

// await waits until the program has printed a line that begins with word, and returns the number behind it.
func (p *program) await(word string) int {
	p.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ended := false
		select {
		case <-p.done:
			ended = true
		default:
		}
		for line := range strings.Lines(p.out.String()) {
			if rest, ok := strings.CutPrefix(line, word+" "); ok && strings.HasSuffix(rest, "\n") {
				n, err := strconv.Atoi(strings.TrimSpace(rest))
				require.NoError(p.t, err)
				return n
			}
		}
		require.False(p.t, ended, "%s has ended without %q: %s", p.cmd, word, &p.out)
		require.Less(p.t, time.Since(begun), limit, "%s has not printed %q: %s", p.cmd, word, &p.out)
	}
}

// goOn ends a wait of peer.c.
func (p *program) goOn() {
	p.t.Helper()
	_, err := p.in.Write([]byte("\n"))
	require.NoError(p.t, err)
}

// kill kills the program as the kernel does.
func (p *program) kill() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Kill())
	<-p.done
}

//go:embed testdata/peer.c
var peerSource []byte

// peerC is the program of testdata/peer.c.
var peerC = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "rsockets")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "peer")
	cmd := exec.Command("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-x", "c", "-o", file, "-", "-lrdmacm")
	cmd.Stdin = bytes.NewReader(peerSource)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("gcc: %w: %s", err, out)
	}
	return file, nil
})

// meet starts peer.c with options and commands, as client or as server, and returns it and the connection to it.
func (p place) meet(t *testing.T, cfg rsocket.Config, cServes bool, words ...string) (*program, *rsocket.Conn) {
	t.Helper()
	file, err := peerC()
	require.NoError(t, err)
	if cServes {
		port := freePort(t, p.peer)
		peer := start(t, file, append([]string{"listen", p.peer, port}, words...)...)
		return peer, p.dial(t, cfg, port)
	}
	ln := p.listen(t, cfg)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	peer := start(t, file, append([]string{"connect", p.host, port}, words...)...)
	return peer, accept(t, ln)
}

// bothRoles runs a test with peer.c as server and as client.
func bothRoles(t *testing.T, test func(t *testing.T, p place, dev *verbs.Device, cServes bool)) {
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		t.Run("C serves", func(t *testing.T) { test(t, p, dev, true) })
		t.Run("Go serves", func(t *testing.T) { test(t, p, dev, false) })
	})
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
