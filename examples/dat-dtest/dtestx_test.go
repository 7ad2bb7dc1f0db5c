// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

const (
	rxeAddress = "10.78.0.1"
	passed     = "immed/atomic test PASSED" // printed by dtestx when it succeeds
)

// dtestx is DAPL's program on rxe0, as the client of a server or as a server.
func dtestx(ctx context.Context, t *testing.T, server string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	_, err := exec.LookPath("dtestx")
	require.NoError(t, err, "it is in dapl2-utils")
	conf := filepath.Join(t.TempDir(), "dat.conf")
	const entry = provider + ` u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "e0 0" ""` + "\n"
	require.NoError(t, os.WriteFile(conf, []byte(entry), 0o600))
	args := []string{"-P", provider, "-b", "256", "-v"}
	if server != "" {
		args = append(args, "-h", server)
	}
	cmd, out := exec.CommandContext(ctx, "dtestx", args...), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+conf)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second
	return cmd, out
}

// DAPL's own test of immediates and atomics is the client.
func TestKernelServesDtestx(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	listening, served := make(chan struct{}), make(chan error, 1)
	go func() {
		served <- runServer(ctx, &out, config{device: "ib:rxe0", server: true, dtestx: true, port: dtestxPort},
			netip.MustParseAddr(rxeAddress), func(uint64) { close(listening) })
	}()
	select {
	case <-listening:
	case err := <-served:
		require.NoError(t, err)
	}
	cmd, theirs := dtestx(ctx, t, rxeAddress)
	err := cmd.Run()
	if err != nil {
		cancel()
	}
	ours := <-served
	require.NoError(t, err, "dtestx: %s\nours: %v\n%s", theirs, ours, &out)
	require.Contains(t, theirs.String(), passed)
	require.NoError(t, ours, "%s", &out)
	requirePartner(t, out.String(), "0x7777", "0x98765", "0x30")
}

// DAPL's own test is the server.
func TestKernelServedByDtestx(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd, theirs := dtestx(ctx, t, "")
	require.NoError(t, cmd.Start())
	var out bytes.Buffer
	err := run(ctx, &out, config{device: "ib:rxe0", address: rxeAddress, client: rxeAddress, dtestx: true,
		port: dtestxPort})
	if err != nil {
		cancel()
	}
	ended := cmd.Wait()
	require.NoError(t, err, "ours: %s\ndtestx: %s", &out, theirs)
	require.NoError(t, ended, "dtestx: %s", theirs)
	require.Contains(t, theirs.String(), passed)
	requirePartner(t, out.String(), "0x1111", "0x54321", "0x300")
}

// requirePartner checks the output of this side.
func requirePartner(t *testing.T, out, immed, word, sum string) {
	t.Helper()
	for _, want := range []string{"the peer offers 256 bytes", "RDMA Write with immediate " + immed,
		"the peer's CmpSwap has left: " + word, "the peer's FetchAdds have left: " + sum} {
		require.Contains(t, out, want)
	}
}
