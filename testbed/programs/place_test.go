// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// side is where one program of a pair runs.
type side struct {
	prefix []string // of the command
	device string
}

// place is where a pair runs.
type place struct {
	kind           string
	server, client side
	addr, addr6    string
	netdev         string        // an interface other than loopback, "" = none
	netaddr        string        // its address
	dat            string        // the file that describes uDAPL's provider on netdev
	slow           time.Duration // factor by which a pair may be slower (0 = 1)
	tally          *tally        // of retries
}

// guestSlow is place.slow for the guest, whose processor is emulated.
const guestSlow = 4

// The two RNICs. GOVERBS_TEST_COMMAND is the goverbs command that runs programs; the default is the
// one built by make.
const commandVariable = "GOVERBS_TEST_COMMAND"

func user(t *testing.T) side {
	t.Helper()
	command := os.Getenv(commandVariable)
	require.NotEmpty(t, command, "%s must be the path of the goverbs command", commandVariable)
	return side{prefix: []string{command, "run", "--"}, device: "usiw0"}
}

func kernel() side { return side{device: "siw0"} }

// words substitutes the values of a place in the words of a command or a variable.
func (p *place) words(words []string, s side, port int) []string {
	values := strings.NewReplacer("{addr}", p.addr, "{addr6}", p.addr6, "{port}", strconv.Itoa(port), "{device}",
		s.device, "{netaddr}", p.netaddr, "{dat}", p.dat)
	out := make([]string, len(words))
	for i, word := range words {
		out[i] = values.Replace(word)
	}
	return out
}

// outside returns an interface that is up and not loopback, and its address, or "" if there is
// none.
func outside(t *testing.T) (name, addr string) {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
				return i.Name, n.IP.String()
			}
		}
	}
	return "", ""
}

// writeDAT writes the file that describes uDAPL's provider "user".
func (p *place) writeDAT(t *testing.T) {
	t.Helper()
	p.dat = filepath.Join(t.TempDir(), "dat.conf")
	require.NoError(t, os.WriteFile(p.dat,
		fmt.Appendf(nil, "user u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"%s 0\" \"\"\n", p.netdev), 0o644))
}

// The ports of servers. They are below the kernel's ephemeral range, so no connection of another
// program uses one of them.
const (
	firstPort = 20000
	lastPort  = 29999
)

var lastTaken = firstPort + os.Getpid()*17%(lastPort-firstPort)

// freePort returns a port on which nothing is listening.
func freePort(t *testing.T) int {
	t.Helper()
	for range lastPort - firstPort {
		if lastTaken++; lastTaken > lastPort {
			lastTaken = firstPort
		}
		ln, err := net.Listen("tcp", ":"+strconv.Itoa(lastTaken))
		if err == nil {
			require.NoError(t, ln.Close())
			return lastTaken
		}
	}
	require.Fail(t, "no port is free")
	return 0
}

// listens reports whether something is listening on a TCP port, including the siw driver of Linux.
func listens(t *testing.T, port int) bool {
	t.Helper()
	return tableHas(t, "/proc/net/tcp", port) || tableHas(t, "/proc/net/tcp6", port)
}

// tableHas reports whether a kernel table contains a listening socket with the port. A host without
// IPv6 lacks one of the tables.
func tableHas(t *testing.T, path string, port int) bool {
	t.Helper()
	const listen = "0A" // TCP_LISTEN
	b, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line) // number, local address, remote address, state, ...
		if len(f) < 4 || f[3] != listen {
			continue
		}
		_, text, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(text, 16, 16); err == nil && int(n) == port {
			return true
		}
	}
	return false
}
