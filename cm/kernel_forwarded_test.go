// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// forwardedVariable is set in a process whose tests run on devices that wrap the fake ones.
const forwardedVariable = "GOVERBS_TEST_FORWARDED"

func forwarded() bool { return os.Getenv(forwardedVariable) != "" }

// TestForwarded runs the tests of this package that use a device again, in a separate process, on a
// device that only forwards to another one.
func TestForwarded(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.v",
		"-test.skip=^(TestForwarded|TestABI|TestAuto.*|TestNothingToWaitFor|TestOfferAfterClose)$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), forwardedVariable+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, bytes.Contains(out, []byte("--- PASS: TestOrderOfTheEnd/fake1")), "they have run")
}
