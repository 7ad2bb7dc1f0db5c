// SPDX-License-Identifier: BSD-3-Clause

package main

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
)

// What the C program prints when a server's client has disconnected, and when a client is done.
const (
	serverGone = "server DISCONNECT EVENT...\nwait for RDMA_READ_ADV state 10\n"
	clientDone = "client DISCONNECT EVENT...\n"
)

var listeningOn = regexp.MustCompile(`(?m)^listening on .*:(\d+)$`)

// rpingServer starts a server on a free port.
func rpingServer(t *testing.T, args ...string) (*running, string) {
	t.Helper()
	r := start(t, append([]string{"rping", "-sd", "-p0"}, args...)...)
	var found []string
	require.Eventually(t, func() bool {
		found = listeningOn.FindStringSubmatch(r.stdout.String())
		return found != nil
	}, 30*time.Second, time.Millisecond, "%s", r.stderr)
	return r, found[1]
}

// pingData returns the data of a ping of size octets as it is printed.
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
		{name: "largest", server: []string{"-vVS", "65536"}, client: []string{"-vV", "-S=65536"}, pings: 10, size: 65536},
		{name: "a server with more room", server: []string{"-vV", "-S1000"}, client: []string{"-vV"}, pings: 3, size: 64},
		{name: "the pattern comes round", server: []string{"-vV"}, client: []string{"-vV"}, pings: 120, size: 64},
		{name: "IPv6", server: []string{"-vV", "-a", "::1"}, client: []string{"-vV"}, host: "::1", pings: 2, size: 64},
		{name: "every address", server: []string{"-v", "-a", "::0"}, client: []string{"-v"}, host: "::1", pings: 1, size: 64},
		{name: "by name", server: []string{"-v", "-a", "localhost"}, client: []string{"-v"}, host: "localhost", pings: 1, size: 64},
		{name: "source", server: []string{"-v"}, client: []string{"-v", "-I", "127.0.0.1"}, pings: 1, size: 64},
		{name: "source by name", server: []string{"-v"}, client: []string{"-v", "-I", "localhost"}, pings: 1, size: 64},
		{name: "device", server: []string{"-v", "--device", "usiw0"}, client: []string{"-v", "--device=usiw0"}, pings: 1, size: 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.host == "" {
				c.host = "127.0.0.1"
			}
			s, port := rpingServer(t, c.server...)
			got := goverbs(t, append([]string{"rping", "-c", "-a", c.host, "-p", port, "-C", strconv.Itoa(c.pings)}, c.client...)...)
			require.Equal(t, exitDone, got.code, got.stderr)
			require.Equal(t, pingLines("ping data: ", c.pings, c.size), got.stdout)
			require.Equal(t, clientDone, got.stderr)
			r := s.end(t)
			require.Equal(t, exitDone, r.code, r.stderr)
			require.Equal(t, pingLines("server ping data: ", c.pings, c.size), dataLines("server ping data: ", r.stdout))
			require.Equal(t, serverGone, r.stderr)
		})
	}
}

// Without -v and -d nothing is printed but the ends, and the port is 7174.
func TestRPingDefaultPort(t *testing.T) {
	host := "127.0.0.1"
	if runtime.GOOS == "linux" { // all of 127.0.0.0/8 is this host: others that use the port do not matter
		host = fmt.Sprintf("127.%d.%d.1", 1+os.Getpid()>>8&0x7f, os.Getpid()&0xff)
	}
	s := start(t, "rping", "-s", "-a", host)
	var c outcome
	require.Eventually(t, func() bool {
		c = goverbs(t, "rping", "-c", "-a", host, "-C1")
		return c.code == exitDone
	}, 10*time.Second, 10*time.Millisecond, "%v", &c)
	require.Empty(t, c.stdout)
	require.Equal(t, clientDone, c.stderr)
	r := s.end(t)
	require.Equal(t, outcome{"", serverGone, exitDone, r.took}, r)

	ln, err := net.Listen("tcp", host+":7174")
	require.NoError(t, err)
	defer ln.Close()
	r = goverbs(t, "rping", "-s", "-a", host)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, host+":7174")
	require.Contains(t, r.stderr, "address already in use")
	require.Len(t, lines(t, r.stderr), 1)
}

func TestRPingTrace(t *testing.T) {
	s, port := rpingServer(t)
	c := goverbs(t, "rping", "-cd", "-C1", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, exitDone, c.code, c.stderr)
	require.Regexp(t, `(?s)^device usiw0 .*\nresolved 127\.0\.0\.1:`+port+`\nconnected: .*depths 1 and 1\n`+
		`advertise addr 0x[0-9a-f]+ rkey 0x[0-9a-f]+ size 64\nthe server has read\n`+
		`advertise addr .*\nthe server has written\n$`, c.stdout)
	r := s.end(t)
	require.Regexp(t, `(?s)^device .*\nlistening on .*\nrequest from 127.*\nconnected: .*\n`+
		`ping at addr .*\nread\npong to addr .*\nwritten\n$`, r.stdout)
}

func TestRPingPersistent(t *testing.T) {
	const n = 5
	s, port := rpingServer(t, "-P", "-vV", "-S1000")
	endless := start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	endless.stdout.await(t, "\n")
	clients := make([]*running, n)
	for i := range clients {
		clients[i] = start(t, "rping", "-cvV", "-C200", "-S", strconv.Itoa(100+i), "-a", "127.0.0.1", "-p", port)
	}
	for i, c := range clients {
		r := c.end(t)
		require.Equal(t, exitDone, r.code, r.stderr)
		require.Equal(t, pingLines("ping data: ", 200, 100+i), r.stdout)
		require.Equal(t, clientDone, r.stderr)
	}
	gone := func(text string, n int) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(s.stderr.String(), text) == n }, 20*time.Second, time.Millisecond)
	}
	gone(serverGone, n)

	// One that is killed disturbs nobody.
	require.NoError(t, endless.cmd.Process.Kill())
	_ = endless.cmd.Wait()
	gone("server DISCONNECT EVENT...\n", n+1)
	c := goverbs(t, "rping", "-c", "-V", "-C3", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, exitDone, c.code, c.stderr)

	out := s.stdout.String()
	for i := range n {
		require.Equal(t, 1, strings.Count(out, "server ping data: "+pingData(199, 100+i)+"\n"))
	}
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
}

// A server without -P has no room for a second client, and says so at once.
func TestRPingOneClient(t *testing.T) {
	s, port := rpingServer(t)
	first := start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	first.stdout.await(t, "\n")
	second := goverbs(t, "rping", "-c", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, exitFailed, second.code)
	require.Contains(t, second.stderr, "connection refused")

	// The first goes on, until the server is killed.
	before := len(first.stdout.String())
	require.Eventually(t, func() bool { return len(first.stdout.String()) > before }, 10*time.Second, time.Millisecond)
	require.NoError(t, s.cmd.Process.Kill())
	_ = s.cmd.Wait()
	killed := time.Now()
	r := first.end(t)
	require.Less(t, time.Since(killed), 5*time.Second)
	require.Equal(t, exitFailed, r.code)
	require.Regexp(t, `^client DISCONNECT EVENT\.\.\.\nwait for RDMA_WRITE_(ADV|COMPLETE) state 10\n`+
		`goverbs rping: ping \d+: waiting for RDMA_WRITE_(ADV|COMPLETE): .*\n$`, r.stderr)
}

func TestRPingClientKilled(t *testing.T) {
	s, port := rpingServer(t, "-C", "1000000")
	c := start(t, "rping", "-cv", "-a", "127.0.0.1", "-p", port)
	c.stdout.await(t, "\n")
	require.NoError(t, c.cmd.Process.Kill())
	_ = c.cmd.Wait()
	r := s.end(t)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "server DISCONNECT EVENT...\nwait for RDMA_")
	require.Contains(t, r.stderr, " state 10\ngoverbs rping: ")
}

// A server that is told how many pings must come fails if fewer do.
func TestRPingTooFew(t *testing.T) {
	s, port := rpingServer(t, "-C4")
	c := goverbs(t, "rping", "-c", "-C3", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, exitDone, c.code, c.stderr)
	r := s.end(t)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, serverGone+"goverbs rping: the peer disconnected after 3 of 4 pings\n", r.stderr)
}

func TestRPingServerTooSmall(t *testing.T) {
	s, port := rpingServer(t, "-S99")
	c := goverbs(t, "rping", "-c", "-S100", "-a", "127.0.0.1", "-p", port)
	require.Equal(t, exitFailed, c.code)
	require.Contains(t, c.stderr, "client DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\n")
	r := s.end(t)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "goverbs rping: ping 0: the client has 100 octets, the server room for 1 to 99 (-S)\n", r.stderr)
}

func TestRPingUsage(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no role", nil, []string{"-s", "-c"}},
		{"both roles", []string{"-s", "-c"}, []string{"-s and -c"}},
		{"both roles combined", []string{"-vsc", "-a", "::1"}, []string{"-s and -c"}},
		{"client without a server", []string{"-c"}, []string{"-a ADDR"}},
		{"argument", []string{"-s", "127.0.0.1"}, []string{`"127.0.0.1"`}},
		{"unknown letter", []string{"-s", "-t", "5"}, []string{"'t'"}},
		{"unknown option", []string{"-s", "--quick"}, []string{"--quick"}},
		{"QPs of its own", []string{"-s", "-q"}, []string{"-q: not supported"}},
		{"persistent client", []string{"-cP", "-a", "::1"}, []string{"-P"}},
		{"source of a server", []string{"-s", "-I", "127.0.0.1"}, []string{`-I "127.0.0.1"`}},
		{"no address", []string{"-s", "-a", ""}, []string{`-a ""`}},
		{"no source", []string{"-c", "-a", "::1", "-I", ""}, []string{`-I ""`}},
		{"address with port", []string{"-c", "-a", "127.0.0.1:7174"}, []string{`-a "127.0.0.1:7174"`, "-p"}},
		{"address in brackets", []string{"-c", "-a", "[::1]"}, []string{`-a "[::1]"`}},
		{"source with port", []string{"-c", "-a", "::1", "-I", "::1:x"}, []string{`-I "::1:x"`}},
		{"size too small", []string{"-s", "-S", "22"}, []string{"-S", `"22"`, "23 to 65536"}},
		{"size too large", []string{"-s", "-S65537"}, []string{"-S", `"65537"`, "23 to 65536"}},
		{"size is no number", []string{"-s", "-S", "64k"}, []string{"-S", `"64k"`, "not a number"}},
		{"negative count", []string{"-s", "-C", "-1"}, []string{"-C", `"-1"`, "0 to 2147483647"}},
		{"count too large", []string{"-s", "-C", "2147483648"}, []string{"-C", `"2147483648"`}},
		{"count far too large", []string{"-s", "-C", "99999999999999999999"}, []string{"-C", `"99999999999999999999"`, "0 to 2147483647"}},
		{"count is no number", []string{"-s", "-C", ""}, []string{"-C", `""`, "not a number"}},
		{"count missing", []string{"-s", "-C"}, []string{"'C'"}},
		{"port out of range", []string{"-s", "-p", "65536"}, []string{"-p", `"65536"`, "0 to 65535"}},
		{"port by name", []string{"-s", "-p", "rdma"}, []string{"-p", `"rdma"`}},
		{"port to connect to", []string{"-c", "-a", "::1", "-p", "0"}, []string{"-p 0"}},
		{"unknown device", []string{"-s", "--device", "mlx5_99"}, []string{"--device", `"mlx5_99"`, "present: ", "usiw0)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := goverbs(t, append([]string{"rping"}, c.args...)...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Empty(t, r.stdout)
			require.Len(t, lines(t, r.stderr), 1)
			require.True(t, strings.HasPrefix(r.stderr, "goverbs rping: "), r.stderr)
			for _, want := range c.want {
				require.Contains(t, r.stderr, want)
			}
		})
	}
	r := goverbs(t, "rping", "-h")
	require.Equal(t, exitDone, r.code)
	for _, want := range []string{"-s, --server", "-C, --count COUNT", "(default 7174)", "(default 64)", "--device NAME"} {
		require.Contains(t, r.stdout, want)
	}
}

// Decimal numbers are decimal, also with zeros before them, as atoi(3) has it.
func TestRPingDecimal(t *testing.T) {
	s, port := rpingServer(t, "-v", "-S0100")
	c := goverbs(t, "rping", "-c", "-C010", "-S", "0100", "-a", "127.0.0.1", "-p", "0"+port)
	require.Equal(t, exitDone, c.code, c.stderr)
	require.Equal(t, pingLines("server ping data: ", 10, 100), dataLines("server ping data: ", s.end(t).stdout))
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
		{"unresolvable address to listen on", []string{"-s", "-a", "no-such-host.invalid"}, []string{"no-such-host.invalid"}},
		{"foreign address to listen on", []string{"-s", "-a", "192.0.2.1"}, []string{"192.0.2.1:7174", "cannot assign requested address"}},
		{"unresolvable source", []string{"-c", "-a", "127.0.0.1", "-I", "no-such-host.invalid"}, []string{"-I no-such-host.invalid"}},
		{"foreign source", []string{"-c", "-a", "127.0.0.1", "-I", "192.0.2.1"},
			[]string{"cma event RDMA_CM_EVENT_CONNECT_ERROR, error -", "192.0.2.1"}},
		{"source of another family", []string{"-c", "-a", "::1", "-I", "127.0.0.1"}, []string{"::1", "family of 127.0.0.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := goverbs(t, append([]string{"rping"}, c.args...)...)
			require.Equal(t, exitFailed, r.code, fmt.Sprint(r))
			require.Empty(t, r.stdout)
			for _, want := range c.want {
				require.Contains(t, r.stderr, want)
			}
			require.Contains(t, r.stderr, "goverbs rping: ")
		})
	}
}
