// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// relay is the server of a C program and the client of its partner, and forwards data between them.
// begin starts the first one with the port to connect to; port is the other one's. Both must have
// QPs.
func (p place) relay(t *testing.T, dev *verbs.Device, name, port string, begin func(port string) *program) {
	t.Helper()
	cfg := rsocket.Config{Device: dev}
	ln := p.listen(t, cfg)
	_, front, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	server := p.dial(t, cfg, port)
	program := begin(front)
	client := accept(t, ln)
	errs := make(chan error, 2)
	carry := func(to, from *rsocket.Conn) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.CloseWrite()
		}
		errs <- err
	}
	first := make([]byte, 1)
	_, err = client.Read(first)
	require.NoError(t, err)
	p.carries(t, name, 2)
	_, err = server.Write(first)
	require.NoError(t, err)
	go carry(server, client)
	go carry(client, server)
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	program.Ends(t, 0)
}

// TestRcopy: rcopy copies 8 MiB to another rcopy through a relay.
func TestRcopy(t *testing.T) {
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		data := make([]byte, 8<<20+1)
		rnd := rand.NewChaCha8([32]byte{})
		_, _ = rnd.Read(data) // never fails
		require.NoError(t, os.WriteFile(from, data, 0o600))
		port := freePort(t, "0.0.0.0")
		start(t, "rcopy", "-p", port)
		p.relay(t, dev, "rcopy", port,
			func(port string) *program { return start(t, "rcopy", from, p.host+":"+to, "-p", port) })
		copied, err := os.ReadFile(to)
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(data), sha256.Sum256(copied))
	})
}

// TestNetPIPE: NPtcp, which was written for TCP, checks what its partner sends through a relay, in
// messages of 1 byte to 64 KiB.
func TestNetPIPE(t *testing.T) {
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		port := freePort(t, "0.0.0.0")
		options := []string{"-i", "-n", "5", "-u", "65536", "-o", filepath.Join(t.TempDir(), "out")}
		server := startPreloaded(t, "NPtcp", append(options, "-P", port)...)
		p.relay(t, dev, "NPtcp", port, func(port string) *program {
			return startPreloaded(t, "NPtcp", append(options, "-h", p.host, "-P", port)...)
		})
		server.Ends(t, 0)
	})
}

// TestIperf: iperf (version 2), which was written for TCP, sends 8 MiB through a relay, and its
// server counts them.
func TestIperf(t *testing.T) {
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		port := freePort(t, p.peer)
		server := startPreloaded(t, "iperf", "-s", "-B", p.peer, "-p", port, "-f", "B", "-y", "C", "-P", "1")
		p.relay(t, dev, "iperf", port, func(port string) *program {
			return startPreloaded(t, "iperf", "-c", p.host, "-p", port, "-n", "8388608", "-l", "100000")
		})
		server.Ends(t, 0)
		require.Contains(t, server.Out.String(), ",8388608,")
	})
}
