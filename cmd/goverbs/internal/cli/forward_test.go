// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// programVariable turns this test binary into the program, with additional devices that wrap others
// and only forward.
const programVariable = "GOVERBS_TEST_FORWARDING_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		forward.Register(forward.Prefix, forward.Wrap)
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

// demoReport is the output of the demo.
type demoReport struct {
	Device string
	PIDs   []int
	Steps  []map[string]any
	OK     bool
}

// runDemo runs the demo, all of whose processes are this test binary.
func runDemo(t *testing.T, device string) (r demoReport) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "demo", "--json", "--device", device, "--clients", "2", "--ops", "50")
	cmd.Env = append(os.Environ(), programVariable+"=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", &stderr, out)
	require.NoError(t, json.Unmarshal(out, &r))
	require.True(t, r.OK)
	return r
}

// TestForwardedDemo: the demo does the same on a wrapped device as on the device itself.
func TestForwardedDemo(t *testing.T) {
	want := runDemo(t, "usiw0")
	for _, device := range []string{"forward:usiw0", "forward:forward:usiw0"} {
		got := runDemo(t, device)
		require.Equal(t, device, got.Device)
		require.Equal(t, want.Steps, got.Steps)
		require.Len(t, got.PIDs, len(want.PIDs))
	}
}

// TestKernelForwardedDemo does the same in the guest, on one device, because a demo on rxe0 takes a
// minute there.
func TestKernelForwardedDemo(t *testing.T) {
	const device = "siw0"
	rdmatest.KernelDevice(t, device)
	got := runDemo(t, forward.Prefix+device)
	require.Equal(t, forward.Prefix+device, got.Device)
	var done []any
	for _, step := range got.Steps {
		if step["skipped"] == nil {
			done = append(done, step["name"])
		}
	}
	require.Equal(t, []any{"connect", "send", "write", "read", "close"}, done)
}

// TestWrapOfNothing: wrapping an unsuitable device is wrong usage.
func TestWrapOfNothing(t *testing.T) {
	for _, device := range []string{"forward:usiw0", "forward:", ":usiw0"} {
		r := execute(t, "demo", "--device", device)
		require.Equal(t, exitUsage, r.code, device)
		require.Contains(t, r.stderr, device)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, device := range []string{"forward:auto", "forward:absent0", "forward:", "ib:auto", "ib:absent0", "ib:"} {
		cmd := exec.CommandContext(t.Context(), self, "demo", "--device", device)
		cmd.Env = append(os.Environ(), programVariable+"=1")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, device)
		require.Equal(t, exitUsage, exit.ExitCode(), "%s", out)
	}
}

// TestInfiniBandOverIWARP: with the semantics of InfiniBand the demo skips only what InfiniBand
// lacks, even on an RNIC without atomics and immediates.
func TestInfiniBandOverIWARP(t *testing.T) {
	for _, device := range []string{"ib:usiw0", "ib:usiw0-plain"} {
		for _, step := range runDemo(t, device).Steps {
			require.Equal(t, step["name"] == "imm64", step["skipped"] != nil, "%s: %v", device, step)
		}
	}
}
