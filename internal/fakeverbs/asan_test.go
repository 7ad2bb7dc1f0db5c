// SPDX-License-Identifier: BSD-3-Clause

//go:build asan && linux && cgo && !noibverbs

package fakeverbs

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Checks what make asan relies on: the sanitizer detects an access to a destroyed object even if it
// is inline in verbs.h, where no function of this package sees it, and reports memory that C has
// leaked when the process exits.
func TestSanitizerReports(t *testing.T) {
	switch os.Getenv("FAKEVERBS_MISTAKE") {
	case "use after destroy":
		r := newRig(t, Fake0)
		cq, err := r.ctx.createCQ(16, r.ch)
		require.NoError(t, err)
		require.NoError(t, cq.destroyCQ())
		_, _ = cq.poll(1)
		return
	case "leak":
		callLeak()
		return
	case "none":
		return
	}
	require.NotContains(t, os.Getenv("LSAN_OPTIONS"), "suppressions", "they hide what was forgotten")
	for mistake, report := range map[string]string{
		"none":              "",
		"use after destroy": "ERROR: AddressSanitizer: use-after-poison",
		"leak":              "ERROR: LeakSanitizer: detected memory leaks",
	} {
		t.Run(mistake, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "-test.run", "^TestSanitizerReports$")
			cmd.Env = append(os.Environ(), "FAKEVERBS_MISTAKE="+mistake)
			out, err := cmd.CombinedOutput()
			if report == "" {
				require.NoError(t, err, "%s", out)
				require.NotContains(t, string(out), "Sanitizer")
				return
			}
			require.Error(t, err)
			require.Contains(t, string(out), report)
		})
	}
}
