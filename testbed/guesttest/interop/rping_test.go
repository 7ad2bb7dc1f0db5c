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
)

// Both rpings together: that of librdmacm is always on a device of the kernel, ours on the user-space RNIC or on one of the kernel.

// pings are command lines for the same exchange.
type pings struct{ count, size int }

func (n pings) options() []string {
	return []string{"-C", strconv.Itoa(n.count), "-S", strconv.Itoa(n.size), "-v", "-V"}
}

// line is the output of rping for ping i: a number, and a pattern that depends on it.
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

// printed requires that a program has printed every ping, and in order.
func (n pings) printed(p *program, prefix string) {
	p.t.Helper()
	rest := p.text()
	for i := range n.count {
		_, after, found := strings.Cut(rest, prefix+n.line(i))
		require.True(p.t, found, "%s: ping %d", p.name, i)
		rest = after
	}
	require.NotContains(p.t, p.text(), "data mismatch")
}

// finishes waits for the end of a program. rping of librdmacm need only notice the end of the connection: it can hang when it ends
// its threads.
func finishes(p *program) {
	p.t.Helper()
	if !slices.Equal(p.cmd.Args[:len(rping)], rping) {
		p.runs()
		return
	}
	p.until(waitLimit, "DISCONNECT EVENT")
	require.True(p.t, strings.Contains(p.text(), "DISCONNECT EVENT") || p.endsWithin(time.Second), "has not noticed the end: %s", p.name)
}

// startClient starts a client. The connection manager chooses a port at random, without checking whether TCP uses it; if the port is
// in use, startClient tries again.
func startClient(t *testing.T, parts ...[]string) *program {
	t.Helper()
	for attempt := 1; ; attempt++ {
		p := start(t, parts...)
		p.until(hangTime, "ping data", "connect error", "use")
		if attempt == attempts || !strings.Contains(strings.ToLower(p.text()), "address already in use") {
			return p
		}
		t.Logf("%s: its port is taken, attempt %d", p.name, attempt)
		p.kill()
	}
}

// port gives every server a port of its own: those of the kernel's RNICs and of the host are the same.
var port = 7200

func nextPort() string {
	port++
	return strconv.Itoa(port)
}

// rpingCases are sizes from the smallest to the largest that both programs have.
var rpingCases = []pings{{3, 64}, {20, 23}, {5, 1500}, {4, 65535}}

// TestRping has the user-space RNIC and the kernel's siw play client and server for each other.
func TestRping(t *testing.T) {
	needKernel(t)
	ours := []string{goverbs(t), "rping"}
	everywhere(t, func(t *testing.T, p place) {
		for _, n := range rpingCases {
			t.Run(fmt.Sprintf("kernel serves/%d", n.size), func(t *testing.T) {
				at := []string{"-a", kernelHost, "-p", nextPort()}
				server := start(t, rping, []string{"-s", "-d"}, at, n.options())
				server.prints("rdma_listen")
				client := start(t, p.under, ours, []string{"-c"}, at, n.options())
				finishes(client)
				n.printed(client, "ping data: ")
				finishes(server)
				n.printed(server, "server ping data: ")
			})
			t.Run(fmt.Sprintf("user space serves/%d", n.size), func(t *testing.T) {
				at := []string{"-a", p.host, "-p", nextPort()}
				server := start(t, p.under, ours, []string{"-s", "-d"}, at, n.options())
				server.prints("listening")
				client := startClient(t, rping, []string{"-c"}, at, n.options())
				finishes(client)
				n.printed(client, "ping data: ")
				finishes(server)
				n.printed(server, "server ping data: ")
			})
		}
	})
}

// TestRpingPersistent has one server of either kind serve several clients at a time.
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
			server.prints(c.listens)
			var clients []*program
			for range 3 {
				client := startClient(t, c.client, []string{"-c"}, at, n.options())
				// If two requests arrive at once, rping of librdmacm uses the second one for both.
				client.prints("ping data: rdma-ping-0:")
				clients = append(clients, client)
			}
			for _, client := range clients {
				finishes(client)
				n.printed(client, "ping data: ")
			}
		})
	}
}

// TestRpingRefused: a client without a server reports that.
func TestRpingRefused(t *testing.T) {
	needKernel(t)
	at := []string{"-a", kernelHost, "-p", nextPort(), "-C", "1"}
	require.NotZero(t, start(t, []string{goverbs(t), "rping", "-c"}, at).ends())
	start(t, rping, []string{"-c"}, at).prints("rdma_connect: Connection refused") // it prints this and waits forever
}

// TestRpingKilled kills one side in the middle of many pings: the other one notices, and ours ends with an error.
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
				var server, client *program
				if c.kernelServes {
					at := []string{"-a", kernelHost, "-p", nextPort()}
					server = start(t, rping, []string{"-s", "-d", "-v"}, at)
					server.prints("rdma_listen")
					client = start(t, p.under, ours, []string{"-c", "-v"}, at)
				} else {
					at := []string{"-a", p.host, "-p", nextPort()}
					// With a count, an orderly end between two pings is an error too.
					server = start(t, p.under, ours, []string{"-s", "-d", "-v", "-C", "1000000000"}, at)
					server.prints("listening")
					client = startClient(t, rping, []string{"-c", "-v"}, at)
				}
				client.prints("rdma-ping-5:")
				server.prints("rdma-ping-5:")
				killed, left := client, server
				if c.killServer {
					killed, left = server, client
				}
				killed.kill()
				if (left == server) == c.kernelServes {
					left.prints("DISCONNECT EVENT")
				} else {
					require.Positive(t, left.ends(), left.text())
				}
			})
		}
	})
}

// If both ends of a connection are siw and the processor is busy, siw can leave a Read unanswered, also between two rpings of
// librdmacm. Such a run is repeated.
const (
	attempts = 5
	hangTime = 5 * time.Second
)

// TestRpingOnKernelDevices: our rping, on devices of the kernel through libibverbs and librdmacm, and rping of librdmacm are client
// and server of each other.
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
							server.prints(c.listens)
							client := startClient(t, c.client, []string{"-c"}, at, n.options())
							if d.hangs && attempt < attempts && !client.endsWithin(hangTime) {
								t.Logf("siw hangs: %s, attempt %d", client.name, attempt)
								client.kill()
								server.kill()
								continue
							}
							finishes(client)
							n.printed(client, "ping data: ")
							finishes(server)
							n.printed(server, "server ping data: ")
							return
						}
					})
				}
			}
		})
	}
}
