// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// What the C program prints when a server's client disconnects, and when a client finishes.
const (
	serverGone = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n"
	clientDone = "client DISCONNECT EVENT...\n"
)

// rpingServer starts a server on a free port.
func rpingServer(t *testing.T, args ...string) (*clitest.Running, string) {
	t.Helper()
	r := clitest.Start(t, append([]string{"rping", "-sd", "-p0"}, args...)...)
	return r, r.Stdout.AwaitMatch(t, `(?m)^listening on .*:(\d+)$`)[1]
}

// pingData returns the printed data of ping n with size bytes.
func pingData(n, size int) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz"
	rest := alphabet[n%len(alphabet):] + strings.Repeat(alphabet, size/len(alphabet)+1)
	return ("rdma-ping-" + strconv.Itoa(n) + ": " + rest)[:size-1]
}

// pingLines returns what n pings print.
func pingLines(prefix string, n, size int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(prefix + pingData(i, size) + "\n")
	}
	return b.String()
}

var statistics = regexp.MustCompile(
	`(?m)^round trip of (\d+) pings: min (\d+\.\d) us, p50 (\d+\.\d) us, p99 (\d+\.\d) us, max (\d+\.\d) us\n\z`)

// pinged returns what a client printed before the statistics of n pings, which are the last line.
func pinged(t *testing.T, stdout string, n int) string {
	t.Helper()
	m := statistics.FindStringSubmatch(stdout)
	require.NotNil(t, m, "%s", stdout)
	require.Equal(t, strconv.Itoa(n), m[1])
	last := 0.0
	for _, text := range m[2:] {
		us, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, us, last, m[0])
		last = us
	}
	require.NotZero(t, last)
	return strings.TrimSuffix(stdout, m[0])
}

// dataLines returns the lines that begin with prefix; a server with -d prints others too.
func dataLines(prefix, text string) string {
	var b strings.Builder
	for _, l := range strings.SplitAfter(text, "\n") {
		if strings.HasPrefix(l, prefix) {
			b.WriteString(l)
		}
	}
	return b.String()
}

func TestRPing(t *testing.T) {
	require.Equal(t, "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs", pingData(1, 64))
	for _, c := range []struct {
		name           string
		server, client []string
		host           string
		pings, size    int
	}{
		{name: "smallest", server: []string{"-vV", "-S23"}, client: []string{"-vV", "-S23"}, pings: 10, size: 23},
		{name: "64", server: []string{"-v", "-V", "-C", "10"}, client: []string{"-v", "-V"}, pings: 10, size: 64},
		{name: "100", server: []string{"-vVS100"}, client: []string{"-v", "-V", "-S", "100"}, pings: 10, size: 100},
		{name: "largest", server: []string{"-vVS", "65536"}, client: []string{"-vV", "-S=65536"}, pings: 10,
			size: 65536},
		{name: "a server with more room", server: []string{"-vV", "-S1000"}, client: []string{"-vV"}, pings: 3,
			size: 64},
		{name: "the pattern comes round", server: []string{"-vV"}, client: []string{"-vV"}, pings: 120, size: 64},
		{name: "IPv6", server: []string{"-vV", "-a", "::1"}, client: []string{"-vV"}, host: "::1", pings: 2, size: 64},
		{name: "every address", server: []string{"-v", "-a", "::0"}, client: []string{"-v"}, host: "::1", pings: 1,
			size: 64},
		{name: "by name", server: []string{"-v", "-a", "localhost"}, client: []string{"-v"}, host: "localhost",
			pings: 1, size: 64}, {name: "source", server: []string{"-v"}, client: []string{"-v", "-I", "127.0.0.1"},
			pings: 1, size: 64},
		{name: "source by name", server: []string{"-v"}, client: []string{"-v", "-I", "localhost"}, pings: 1, size: 64},
		{name: "device", server: []string{"-v", "--device", "usiw0"}, client: []string{"-v", "--device=usiw0"},
			pings: 1, size: 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.host == "" {
				c.host = "127.0.0.1"
			}
			s, port := rpingServer(t, c.server...)
			got := clitest.Run(t, append([]string{"rping", "-c", "-a", c.host, "-p", port, "-C", strconv.Itoa(c.pings)},
				c.client...)...)
			require.Equal(t, clitest.Done, got.Code, got.Stderr)
			require.Equal(t, pingLines("ping data: ", c.pings, c.size), pinged(t, got.Stdout, c.pings))
			require.Equal(t, clientDone, got.Stderr)
			r := s.End(t)
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			require.Equal(t, pingLines("server ping data: ", c.pings, c.size),
				dataLines("server ping data: ", r.Stdout))
			require.Equal(t, serverGone, r.Stderr)
		})
	}
}

// Without -v and -d only the disconnections and the statistics are printed. The default port is
// 7174.
func TestRPingDefaultPort(t *testing.T) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // any 127.0.0.0/8 address is this host: avoids other users of the port
		host = fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff)
	}
	s := clitest.Start(t, "rping", "-s", "-a", host)
	var c clitest.Outcome
	require.Eventually(t, func() bool {
		c = clitest.Run(t, "rping", "-c", "-a", host, "-C1")
		return c.Code == clitest.Done
	}, 30*time.Second, 10*time.Millisecond, "%v", &c)
	require.Empty(t, pinged(t, c.Stdout, 1))
	require.Equal(t, clientDone, c.Stderr)
	r := s.End(t)
	require.Equal(t, clitest.Outcome{Stderr: serverGone, Took: r.Took}, r)

	ln, err := net.Listen("tcp", host+":7174")
	require.NoError(t, err)
	defer ln.Close()
	r = clitest.Run(t, "rping", "-s", "-a", host)
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, host+":7174")
	require.Contains(t, r.Stderr, "address already in use")
	require.Len(t, clitest.Lines(t, r.Stderr), 1)
}

func TestRPingTrace(t *testing.T) {
	s, port := rpingServer(t)
	c := clitest.Run(t, "rping", "-cd", "-C1", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	require.Regexp(t, `(?s)^device usiw0 .*\nresolved 127\.0\.0\.1:`+port+`\nconnected: .*depths 1 and 1\n`+
		`advertise addr 0x[0-9a-f]+ rkey 0x[0-9a-f]+ size 64\nthe server has read\n`+
		`advertise addr .*\nthe server has written\n$`, pinged(t, c.Stdout, 1))
	r := s.End(t)
	require.Regexp(t, `(?s)^device .*\nlistening on .*\nrequest from 127.*\nconnected: .*\n`+
		`ping at addr .*\nread\npong to addr .*\nwritten\n$`, r.Stdout)
}

func TestRPingPersistent(t *testing.T) {
	const n = 5
	s, port := rpingServer(t, "-P", "-vV", "-S1000")
	endless := clitest.Start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	endless.Stdout.Await(t, "\n")
	clients := make([]*clitest.Running, n)
	for i := range clients {
		clients[i] = clitest.Start(t, "rping", "-cvV", "-C200", "-S", strconv.Itoa(100+i), "-a", "127.0.0.1", "-p",
			port)
	}
	for i, c := range clients {
		r := c.End(t)
		require.Equal(t, clitest.Done, r.Code, r.Stderr)
		require.Equal(t, pingLines("ping data: ", 200, 100+i), pinged(t, r.Stdout, 200))
		require.Equal(t, clientDone, r.Stderr)
	}
	gone := func(text string, n int) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(s.Stderr.String(), text) == n }, 30*time.Second,
			time.Millisecond)
	}
	gone(serverGone, n)

	// A killed client does not disturb others.
	require.NoError(t, endless.Kill())
	gone("server DISCONNECT EVENT...\n", n+1)
	c := clitest.Run(t, "rping", "-c", "-V", "-C3", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, clitest.Done, c.Code, c.Stderr)

	out := s.Stdout.String()
	for i := range n {
		require.Equal(t, 1, strings.Count(out, "server ping data: "+pingData(199, 100+i)+"\n"))
	}
	require.NoError(t, s.Kill())
}

// A server without -P has no room for a second client, and rejects it at once.
func TestRPingOneClient(t *testing.T) {
	s, port := rpingServer(t)
	first := clitest.Start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	first.Stdout.Await(t, "\n")
	second := clitest.Run(t, "rping", "-c", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, clitest.Failed, second.Code)
	require.Contains(t, second.Stderr, "connection refused")

	// The first client continues until the server is killed.
	before := len(first.Stdout.String())
	require.Eventually(t, func() bool { return len(first.Stdout.String()) > before }, 10*time.Second, time.Millisecond)
	require.NoError(t, s.Kill())
	killed := time.Now()
	r := first.End(t)
	require.Less(t, time.Since(killed), 5*time.Second)
	require.Equal(t, clitest.Failed, r.Code)
	require.Regexp(t, `^client DISCONNECT EVENT\.\.\.\nwait for RDMA_WRITE_(ADV|COMPLETE) state 10\n`+
		`goverbs rping: ping \d+: waiting for RDMA_WRITE_(ADV|COMPLETE): .*\n$`, r.Stderr)
}

func TestRPingClientKilled(t *testing.T) {
	s, port := rpingServer(t, "-C", "1000000")
	c := clitest.Start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.Stdout.Await(t, "\n")
	require.NoError(t, c.Kill())
	r := s.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	require.Contains(t, r.Stderr, "server DISCONNECT EVENT...\nwait for RDMA_")
	require.Contains(t, r.Stderr, " state 10\ngoverbs rping: ")
}

// A server with a fixed number of pings fails if fewer arrive.
func TestRPingTooFew(t *testing.T) {
	s, port := rpingServer(t, "-C4")
	c := clitest.Run(t, "rping", "-c", "-C3", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	r := s.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	require.Equal(t, serverGone+"goverbs rping: the peer disconnected after 3 of 4 pings\n", r.Stderr)
}

func TestRPingServerTooSmall(t *testing.T) {
	s, port := rpingServer(t, "-S99")
	c := clitest.Run(t, "rping", "-c", "-S100", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, clitest.Failed, c.Code)
	require.Contains(t, c.Stderr, "client DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\n")
	r := s.End(t)
	require.Equal(t, clitest.Failed, r.Code)
	require.Equal(t, "goverbs rping: ping 0: the client has 100 bytes, the server room for 1 to 99 (-S)\n", r.Stderr)
}

// Decimal numbers stay decimal even with leading zeros, as with atoi(3).
func TestRPingDecimal(t *testing.T) {
	s, port := rpingServer(t, "-v", "-S0100")
	c := clitest.Run(t, "rping", "-c", "-C010", "-S", "0100", "-a", "127.0.0.1", "-p", "0"+port)
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	require.Equal(t, pingLines("server ping data: ", 10, 100), dataLines("server ping data: ", s.End(t).Stdout))
}

func TestRPingAddresses(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"nobody listens", []string{"-c", "-a", "127.0.0.1", "-p", port},
			[]string{"cma event RDMA_CM_EVENT_REJECTED, error -", "127.0.0.1:" + port, "connection refused"}},
		{"unresolvable server", []string{"-c", "-a", "no-such-host.invalid"}, []string{"no-such-host.invalid"}},
		{"unresolvable address to listen on", []string{"-s", "-a", "no-such-host.invalid"},
			[]string{"no-such-host.invalid"}},
		{"foreign address to listen on", []string{"-s", "-a", "192.0.2.1"},
			[]string{"192.0.2.1:7174", "cannot assign requested address"}},
		{"unresolvable source", []string{"-c", "-a", "127.0.0.1", "-I", "no-such-host.invalid"},
			[]string{"-I no-such-host.invalid"}},
		{"foreign source", []string{"-c", "-a", "127.0.0.1", "-I", "192.0.2.1"},
			[]string{"cma event RDMA_CM_EVENT_CONNECT_ERROR, error -", "192.0.2.1"}},
		{"source of another family", []string{"-c", "-a", "::1", "-I", "127.0.0.1"},
			[]string{"::1", "family of 127.0.0.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := clitest.Run(t, append([]string{"rping"}, c.args...)...)
			require.Equal(t, clitest.Failed, r.Code, fmt.Sprint(r))
			require.Empty(t, r.Stdout)
			for _, want := range c.want {
				require.Contains(t, r.Stderr, want)
			}
			require.Contains(t, r.Stderr, "goverbs rping: ")
		})
	}
}
