// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
)

// capture is a tcpdump recording of a pair's packets, the last 64 MB of their headers. It is kept
// if the pair fails.
type capture struct {
	*testprogram.Program
	file string // prefix of the files' names
}

// record starts a capture. Without the required privileges, which root has, there is no capture,
// and the log says so.
func record(t *testing.T, name string) *capture {
	t.Helper()
	dir := os.Getenv("BED_OUT") // in the guest
	if dir == "" {
		dir = filepath.Join("..", "..", "bin", "programs")
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	file, err := filepath.Abs(filepath.Join(dir, name+".pcap"))
	require.NoError(t, err)
	p, err := start([]string{"tcpdump", "-Z", "root", "-n", "-U", "-B", "16384", "-s", "256", "-C", "16", "-W", "4",
		"-i", "lo", "-w", file, "tcp"}, nil)
	if err != nil {
		t.Logf("no capture: %v", err)
		return nil
	}
	c := &capture{p, file}
	if !p.Out.Shows(defaultLimit, "listening on") {
		t.Logf("no capture: %v", p)
		require.NoError(t, p.Kill())
		return nil
	}
	return c
}

// end stops the recording and removes it unless keep is set. It returns its location.
func (c *capture) end(t *testing.T, keep bool) string {
	t.Helper()
	if c == nil {
		return "there is no capture"
	}
	_ = c.Signal(syscall.SIGINT)
	c.EndsWithin(defaultLimit)
	require.NoError(t, c.Kill())
	files, err := filepath.Glob(c.file + "?")
	require.NoError(t, err)
	if keep {
		return fmt.Sprintf("the capture is in %v", files)
	}
	for _, file := range files {
		require.NoError(t, os.Remove(file))
	}
	return ""
}
