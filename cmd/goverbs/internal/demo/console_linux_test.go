// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// shown runs a demo on a terminal and returns what appears there.
func shown(t *testing.T, env ...string) string {
	t.Helper()
	screen, terminal := clitest.Terminal(t)
	text := new(strings.Builder)
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := screen.Read(b)
			text.Write(b[:n])
			if err != nil { // EIO, once the last process has closed the terminal
				return
			}
		}
	}()
	r := clitest.StartOn(t, terminal, env, "demo", "--clients", "1", "--ops", "20")
	require.NoError(t, terminal.Close())
	out := r.End(t)
	<-read
	require.Equal(t, clitest.Done, out.Code, out.Stderr)
	require.Contains(t, text.String(), "verified: all 11 steps")
	return text.String()
}

// TestTerminal: on a terminal a line is redrawn and words have colours, except on a dumb one.
func TestTerminal(t *testing.T) {
	text := shown(t, "TERM=xterm", "NO_COLOR=")
	require.Contains(t, text, string(eraseLine))
	require.Contains(t, text, "\x1b[32mok\x1b[0m")
	text = shown(t, "TERM=xterm", "NO_COLOR=1")
	require.Contains(t, text, string(eraseLine))
	require.NotContains(t, text, "\x1b[32m")
	require.NotContains(t, shown(t, "TERM=dumb"), "\x1b")
}

// TestNoTerminal: a character device that is not a terminal gets plain lines.
func TestNoTerminal(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	t.Setenv("TERM", "xterm")
	require.False(t, newConsole(null, null, false).terminal)
}
