// SPDX-License-Identifier: BSD-3-Clause

//go:build unix

package demo

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// A demo whose recording breaks off is not verified, even if every step is.
func TestPcapBreaksOff(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	d := clitest.Start(t, "demo", "--json", "--pcap", pipe, "--clients", "1", "--ops", "20")
	r, err := os.Open(pipe)
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, r, 1<<20)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	out := d.End(t)
	require.Equal(t, clitest.Failed, out.Code)
	require.Equal(t, "goverbs demo: --pcap "+pipe+": capture: write: write "+pipe+": broken pipe\n", out.Stderr)
	result := decodeResult(t, out.Stdout)
	require.False(t, result.OK)
	for _, s := range result.Steps {
		require.True(t, s.OK, s.Name)
	}
}

// A pipe receives the whole recording, as for a live capture.
func TestPcapIntoPipe(t *testing.T) {
	dir := t.TempDir()
	pipe, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "l.pcapng")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	l := clitest.Start(t, "demo", "--listen", "127.0.0.1:0", "--pcap", pipe)
	r, err := os.Open(pipe)
	require.NoError(t, err)
	l.Stdout.Await(t, "listening on")
	l.Interrupt(t, syscall.SIGTERM)
	head, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, os.WriteFile(file, head, 0o600))
	require.Empty(t, tshark(t, file), "a file without packets")
}
