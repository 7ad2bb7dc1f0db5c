// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limit is how long a test waits for something that must happen.
const limit = 90 * time.Second

// process is the program, or another one, in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu  sync.Mutex
	out bytes.Buffer // stdout and stderr
}

// start starts a program. If it still runs at the end of the test, it is killed.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.WaitDelay = limit
	require.NoError(t, cmd.Start())
	go func() {
		_ = cmd.Wait() // the outcome is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s: %v\n%s", cmd, cmd.ProcessState, p.text())
		}
	})
	return p
}

// execBridge starts the program with a command line.
func execBridge(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	// A process with the race detector would sleep for a second at its end.
	cmd.Env = append(os.Environ(), asBridge+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return start(t, cmd)
}

// startBridge starts the program and waits until it listens. It must end in order at the end of the test, if the test has not ended
// it: all its connections are closed then, or about to be.
func startBridge(t *testing.T, listen, dial string, args ...string) *process {
	t.Helper()
	p := execBridge(t, append([]string{"--listen", listen, "--dial", dial}, args...)...)
	p.await("msg=listening")
	t.Cleanup(func() {
		if !t.Failed() && p.cmd.ProcessState == nil {
			p.signal(syscall.SIGTERM)
			p.ends(exitDone)
		}
	})
	return p
}

// chain starts two bridges, tcp to rsocket and rsocket to tcp, and returns both. args are for the first one.
func chain(t *testing.T, device, host, target string, args ...string) (front, back *process) {
	t.Helper()
	back = startBridge(t, "rsocket://"+net.JoinHostPort(host, "0"), target, "--device", device)
	front = startBridge(t, "tcp://127.0.0.1:0", back.url(), append(args, "--device", device)...)
	return front, back
}

// Write stores the output of the program.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

// text returns what the program has printed.
func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// lines returns the lines of the output that contain a text.
func (p *process) lines(text string) (found []string) {
	for line := range strings.Lines(p.text()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// await waits until a line of the output contains a text, and returns the first such line.
func (p *process) await(text string) string {
	p.t.Helper()
	for begun := time.Now(); ; {
		if found := p.lines(text); len(found) > 0 && strings.HasSuffix(found[0], "\n") {
			return found[0]
		}
		select {
		case <-p.done:
			require.Contains(p.t, p.text(), text, "the program has ended")
		case <-time.After(5 * time.Millisecond):
			require.Less(p.t, time.Since(begun), limit, "no line with %q in %s", text, p.text())
		}
	}
}

// url returns where a bridge listens.
func (p *process) url() string {
	p.t.Helper()
	return regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(p.await("msg=listening"))[1]
}

// address returns the address in url.
func (p *process) address() string {
	p.t.Helper()
	e, err := parseEndpoint(p.url())
	require.NoError(p.t, err)
	return e.address
}

// dial connects to a bridge.
func (p *process) dial() stream {
	p.t.Helper()
	e, err := parseEndpoint(p.url())
	require.NoError(p.t, err)
	c, err := net.DialTimeout(e.scheme, e.address, limit)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = c.Close() })
	require.NoError(p.t, c.SetDeadline(time.Now().Add(limit)))
	return c.(stream)
}

// closesNext connects to a bridge that closes the connection at once, perhaps before connecting has returned.
func (p *process) closesNext() {
	p.t.Helper()
	c, err := net.DialTimeout("tcp", p.address(), limit)
	if err == nil {
		defer c.Close()
		require.NoError(p.t, c.SetDeadline(time.Now().Add(limit)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(p.t, err, syscall.ECONNRESET)
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// ends waits for the end of the program, and requires its exit status.
func (p *process) ends(status int) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		require.FailNow(p.t, "has not ended", "%s\n%s", p.cmd, p.text())
	}
	require.Equal(p.t, status, p.cmd.ProcessState.ExitCode(), p.text())
}

// metrics returns the metrics of a bridge.
func (p *process) metrics() (m map[string]int) {
	p.t.Helper()
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(p.await("msg=metrics"))[1]
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	answer, err := client.Get(url)
	require.NoError(p.t, err)
	defer answer.Body.Close()
	var vars struct{ Bridge map[string]int }
	require.NoError(p.t, json.NewDecoder(answer.Body).Decode(&vars))
	return vars.Bridge
}
