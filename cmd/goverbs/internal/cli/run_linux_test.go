// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnrunnable: the exit status is 127 for a missing program and 126 for one that cannot be
// executed, and the error names the program.
func TestUnrunnable(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("x"), 0o644))
	for _, c := range []struct {
		program string
		code    int
	}{{"no-such-program", 127}, {filepath.Join(dir, "none"), 127}, {text, 126}} {
		r := execute(t, "run", "--", c.program, "-x")
		require.Equal(t, c.code, r.code, r.stderr)
		require.Empty(t, r.stdout)
		require.Len(t, lines(t, r.stderr), 1)
		require.Contains(t, r.stderr, "goverbs run: "+c.program+": ")
	}
}
