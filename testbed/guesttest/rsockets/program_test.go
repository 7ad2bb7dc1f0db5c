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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// program is a process of a C program.
type program struct {
	*testprogram.Program
	in io.Writer
}

func start(t *testing.T, name string, args ...string) *program {
	t.Helper()
	return run(t, exec.Command(name, args...))
}

// preload is the library that makes programs that use sockets use rsockets instead, if possible.
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
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	return &program{testprogram.Start(t, cmd), in}
}

// await waits until the program has printed a line that begins with word, and returns the number
// after it.
func (p *program) await(t *testing.T, word string) int {
	t.Helper()
	n, err := strconv.Atoi(p.Out.AwaitMatch(t, `(?m)^`+word+` (\d+)\n`)[1])
	require.NoError(t, err)
	return n
}

// goOn ends a wait of peer.c.
func (p *program) goOn(t *testing.T) {
	t.Helper()
	_, err := p.in.Write([]byte("\n"))
	require.NoError(t, err)
}

//go:embed testdata/peer.c
var peerSource []byte

// peerC returns the path of the program of testdata/peer.c.
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

// meet starts peer.c with options and commands, as client or as server, and returns it and the
// connection to it.
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
