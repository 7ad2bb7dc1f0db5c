// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package demo

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// The processes of a demo under the race detector, which makes a process with a data race fail. The
// other tests run the program without it, because it slows everything down tenfold.
func TestDemoRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "goverbs")
	require.NoError(t, clitest.Build(path, "-race"))
	out, err := exec.Command(path, "demo", "--ops", "20").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "verified: all 11 steps")
	require.NotContains(t, string(out), "DATA RACE")
}
