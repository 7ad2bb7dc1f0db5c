// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/testprogram"
)

// Both rpings together: librdmacm's is always on a kernel device, ours on the user-space RNIC or on
// a kernel device.

// pings are the options of both sides for the same exchange.
type pings struct{ count, size int }

func (n pings) options() []string {
	return []string{"-C", strconv.Itoa(n.count), "-S", strconv.Itoa(n.size), "-v", "-V"}
}

// line returns the output of rping for ping i: a number, and a pattern that depends on it.
func (n pings) line(i int) string {
	b := []byte(fmt.Sprintf("rdma-ping-%d: ", i))
	for c := byte('A' + i%('z'-'A'+1)); len(b) < n.size-1; {
		b = append(b, c)
		if c++; c > 'z' {
			c = 'A'
		}
	}
	return string(b)
}

// printed requires that a program printed every ping, in order.
func (n pings) printed(t *testing.T, p *testprogram.Program, prefix string) {
	t.Helper()
	rest := p.Out.String()
	for i := range n.count {
		_, after, found := strings.Cut(rest, prefix+n.line(i))
		require.True(t, found, "ping %d: %v", i, p)
		rest = after
	}
	require.NotContains(t, p.Out.String(), "data mismatch")
}

// finishes waits for a program to exit. librdmacm's rping need only notice the end of the
// connection: it can hang when it stops its threads.
func finishes(t *testing.T, p *testprogram.Program) {
	t.Helper()
	if !slices.Equal(p.Cmd.Args[:len(rping)], rping) {
		p.Ends(t, 0)
		return
	}
	require.True(t, p.Out.Shows(testprogram.Limit, "DISCONNECT EVENT") || p.HasEnded(), "has not noticed the end: %v",
		p)
}

// startClient starts a client. The connection manager chooses a port at random, without checking
// whether TCP uses it; if the port is in use, startClient tries again.
func startClient(t *testing.T, parts ...[]string) *testprogram.Program {
	t.Helper()
	for attempt := 1; ; attempt++ {
		p := start(t, parts...)
		p.Out.Shows(hangTime, "ping data", "connect error", "use")
		if attempt == attempts || !strings.Contains(strings.ToLower(p.Out.String()), "address already in use") {
			return p
		}
		t.Logf("%v: its port is taken, attempt %d", p.Cmd, attempt)
		require.NoError(t, p.Kill())
	}
}

// port gives every server a separate port: the kernel's RNICs and the host share their ports.
var port = 7200

func nextPort() string {
	port++
	return strconv.Itoa(port)
}

// rpingCases are sizes from the smallest to the largest that both programs support.
var rpingCases = []pings{{3, 64}, {20, 23}, {5, 1500}, {4, 65535}}

// TestRping runs the user-space RNIC and the kernel's siw as client and server of each other.
func TestRping(t *testing.T) {
	needKernel(t)
	ours := []string{goverbs(t), "rping"}
	everywhere(t, func(t *testing.T, p place) {
		for _, n := range rpingCases {
			t.Run(fmt.Sprintf("kernel serves/%d", n.size), func(t *testing.T) {
				at := []string{"-a", kernelHost, "-p", nextPort()}
				server := start(t, rping, []string{"-s", "-d"}, at, n.options())
				server.Out.Await(t, "rdma_listen")
				client := start(t, p.under, ours, []string{"-c"}, at, n.options())
				finishes(t, client)
				n.printed(t, client, "ping data: ")
				finishes(t, server)
				n.printed(t, server, "server ping data: ")
			})
			t.Run(fmt.Sprintf("user space serves/%d", n.size), func(t *testing.T) {
				at := []string{"-a", p.host, "-p", nextPort()}
				server := start(t, p.under, ours, []string{"-s", "-d"}, at, n.options())
				server.Out.Await(t, "listening")
				client := startClient(t, rping, []string{"-c"}, at, n.options())
				finishes(t, client)
				n.printed(t, client, "ping data: ")
				finishes(t, server)
				n.printed(t, server, "server ping data: ")
			})
		}
	})
}

// TestRpingPersistent: one server of either kind serves several clients concurrently.
func TestRpingPersistent(t *testing.T) {
	needKernel(t)
	ours := []string{goverbs(t), "rping"}
	n := pings{100, 400}
	for _, c := range []struct {
		name           string
		server, client []string
		listens        string
	}{
		{"kernel serves", rping, ours, "rdma_listen"},
		{"user space serves", ours, rping, "listening"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := []string{"-a", kernelHost, "-p", nextPort()}
			server := start(t, c.server, []string{"-s", "-P", "-d"}, at, []string{"-S", "400"})
			server.Out.Await(t, c.listens)
			var clients []*testprogram.Program
			for range 3 {
				client := startClient(t, c.client, []string{"-c"}, at, n.options())
				// If two requests arrive at the same time, librdmacm's rping uses the second one
				// for both.
				client.Out.Await(t, "ping data: rdma-ping-0:")
				clients = append(clients, client)
			}
			for _, client := range clients {
				finishes(t, client)
				n.printed(t, client, "ping data: ")
			}
		})
	}
}

// TestRpingRefused: a client without a server reports that.
func TestRpingRefused(t *testing.T) {
	needKernel(t)
	at := []string{"-a", kernelHost, "-p", nextPort(), "-C", "1"}
	require.NotZero(t, start(t, []string{goverbs(t), "rping", "-c"}, at).Wait(t).ExitCode())
	// it prints this and waits forever
	start(t, rping, []string{"-c"}, at).Out.Await(t, "rdma_connect: Connection refused")
}

// TestRpingKilled kills one side in the middle of many pings: the other one notices, and ours exits
// with an error.
func TestRpingKilled(t *testing.T) {
	needKernel(t)
	ours := []string{goverbs(t), "rping"}
	everywhere(t, func(t *testing.T, p place) {
		for _, c := range []struct {
			name         string
			kernelServes bool
			killServer   bool
		}{
			{"kernel's server", true, true},
			{"kernel's client", false, false},
			{"user-space server", false, true},
			{"user-space client", true, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				var server, client *testprogram.Program
				if c.kernelServes {
					at := []string{"-a", kernelHost, "-p", nextPort()}
					server = start(t, rping, []string{"-s", "-d", "-v"}, at)
					server.Out.Await(t, "rdma_listen")
					client = start(t, p.under, ours, []string{"-c", "-v"}, at)
				} else {
					at := []string{"-a", p.host, "-p", nextPort()}
					// With a count, an orderly close between two pings is an error too.
					server = start(t, p.under, ours, []string{"-s", "-d", "-v", "-C", "1000000000"}, at)
					server.Out.Await(t, "listening")
					client = startClient(t, rping, []string{"-c", "-v"}, at)
				}
				client.Out.Await(t, "rdma-ping-5:")
				server.Out.Await(t, "rdma-ping-5:")
				killed, left := client, server
				if c.killServer {
					killed, left = server, client
				}
				require.NoError(t, killed.Kill())
				if (left == server) == c.kernelServes {
					left.Out.Await(t, "DISCONNECT EVENT")
				} else {
					require.Positive(t, left.Wait(t).ExitCode(), "%v", left)
				}
			})
		}
	})
}

// If both ends of a connection are siw and the processor is busy, siw can leave a Read unanswered,
// even between two of librdmacm's rpings. Such a run is repeated.
const (
	attempts = 5
	hangTime = 5 * time.Second
)

// TestRpingOnKernelDevices: our rping, on kernel devices through libibverbs and librdmacm, and
// librdmacm's rping are client and server of each other.
func TestRpingOnKernelDevices(t *testing.T) {
	for _, d := range []struct {
		device, host string
		hangs        bool
	}{{"siw0", "10.77.0.1", true}, {"rxe0", "10.78.0.1", false}} {
		t.Run(d.device, func(t *testing.T) {
			rdmatest.KernelDevice(t, d.device)
			ours := []string{goverbs(t), "rping", "--device", d.device}
			for _, n := range []pings{{20, 23}, {4, 65535}} {
				for _, c := range []struct {
					name           string
					server, client []string
					listens        string
				}{
					{"librdmacm's serves", rping, ours, "rdma_listen"},
					{"ours serves", ours, rping, "listening"},
					{"ours serves ours", ours, ours, "listening"},
				} {
					t.Run(fmt.Sprintf("%s/%d", c.name, n.size), func(t *testing.T) {
						for attempt := 1; ; attempt++ {
							at := []string{"-a", d.host, "-p", nextPort()}
							server := start(t, c.server, []string{"-s", "-d"}, at, n.options())
							server.Out.Await(t, c.listens)
							client := startClient(t, c.client, []string{"-c"}, at, n.options())
							if d.hangs && attempt < attempts && !client.EndsWithin(hangTime) {
								t.Logf("siw hangs: %s, attempt %d", client.Cmd, attempt)
								require.NoError(t, client.Kill())
								require.NoError(t, server.Kill())
								continue
							}
							finishes(t, client)
							n.printed(t, client, "ping data: ")
							finishes(t, server)
							n.printed(t, server, "server ping data: ")
							return
						}
					})
				}
			}
		})
	}
}
