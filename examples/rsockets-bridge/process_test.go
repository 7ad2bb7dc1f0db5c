// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
)

// limit is how long a test waits for something that must happen.
const limit = 90 * time.Second

// process is a process of the program.
type process struct{ *testprogram.Program }

// execBridge starts the program with a command line.
func execBridge(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, args...)
	// A process with the race detector would sleep for a second when it exits.
	cmd.Env = append(os.Environ(), asBridge+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return &process{testprogram.Start(t, cmd)}
}

// startBridge starts the program and waits until it is listening. It must exit cleanly at the end
// of the test unless the test has ended it; by then, all its connections are closed or about to be.
func startBridge(t *testing.T, listen, dial string, args ...string) *process {
	t.Helper()
	p := execBridge(t, append([]string{"--listen", listen, "--dial", dial}, args...)...)
	p.await(t, "msg=listening")
	t.Cleanup(func() {
		if !t.Failed() && !p.HasEnded() {
			require.NoError(t, p.Signal(syscall.SIGTERM))
			p.Ends(t, exitDone)
		}
	})
	return p
}

// chain starts two bridges, tcp to rsocket and rsocket to tcp, and returns both. args apply to the
// first one.
func chain(t *testing.T, device, host, target string, args ...string) (front, back *process) {
	t.Helper()
	back = startBridge(t, "rsocket://"+net.JoinHostPort(host, "0"), target, "--device", device)
	front = startBridge(t, "tcp://127.0.0.1:0", back.url(t), append(args, "--device", device)...)
	return front, back
}

// lines returns the lines of the output that contain a text.
func (p *process) lines(text string) (found []string) {
	for line := range strings.Lines(p.Out.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// await waits until a line of the output contains a text, and returns the first such line.
func (p *process) await(t *testing.T, text string) string {
	t.Helper()
	return p.Out.AwaitMatch(t, `.*`+regexp.QuoteMeta(text)+`.*\n`)[0]
}

// url returns the URL on which a bridge listens.
func (p *process) url(t *testing.T) string {
	t.Helper()
	return regexp.MustCompile(`listen=(\S+)`).FindStringSubmatch(p.await(t, "msg=listening"))[1]
}

// address returns the address in url.
func (p *process) address(t *testing.T) string {
	t.Helper()
	e, err := parseEndpoint(p.url(t))
	require.NoError(t, err)
	return e.address
}

// dial connects to a bridge.
func (p *process) dial(t *testing.T) stream {
	t.Helper()
	e, err := parseEndpoint(p.url(t))
	require.NoError(t, err)
	c, err := net.DialTimeout(e.scheme, e.address, limit)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
	return c.(stream)
}

// closesNext connects to a bridge that closes the connection immediately, perhaps before connecting
// returns.
func (p *process) closesNext(t *testing.T) {
	t.Helper()
	c, err := net.DialTimeout("tcp", p.address(t), limit)
	if err == nil {
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(limit)))
		_, err = c.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

// metrics returns the metrics of a bridge.
func (p *process) metrics(t *testing.T) (m map[string]int) {
	t.Helper()
	url := regexp.MustCompile(`url=(\S+)`).FindStringSubmatch(p.await(t, "msg=metrics"))[1]
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	answer, err := client.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	var vars struct{ Bridge map[string]int }
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&vars))
	return vars.Bridge
}
