// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
)

// commandVariable is the variable with the path of a goverbs command built with cgo.
const commandVariable = "GOVERBS_TEST_COMMAND"

// goverbs returns the path of the goverbs command.
func goverbs(t *testing.T) string {
	t.Helper()
	path := os.Getenv(commandVariable)
	require.NotEmpty(t, path, "%s must be the path of a goverbs command with cgo", commandVariable)
	return path
}

// rping is the start of the command line of librdmacm's rping, with line-buffered output.
var rping = []string{"stdbuf", "-oL", "rping"}

// start runs a command line made of parts. stdbuf and ip netns exec exec the program that they
// start, so there is only one process.
func start(t *testing.T, parts ...[]string) *testprogram.Program {
	t.Helper()
	line := slices.Concat(parts...)
	return testprogram.Start(t, exec.Command(line[0], line[1:]...))
}
