// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMissingHeaders: without the headers of rdma-core the compiler says in one line what to install, or what to do without
// them. The compiler of the test looks for headers in an empty directory only.
func TestMissingHeaders(t *testing.T) {
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		out, err := exec.Command("go", "env", "CC").Output()
		require.NoError(t, err)
		cc = strings.Fields(string(out))
	}
	src, err := filepath.Abs("cgo_verbs.h")
	require.NoError(t, err)
	cmd := exec.Command(cc[0], append(cc[1:], "-nostdinc", "-isystem", t.TempDir(), "-I", filepath.Dir(src), "-include", "cgo_verbs.h", "-E",
		"-x", "c", os.DevNull, "-o", os.DevNull)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	var errors []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "error:") {
			errors = append(errors, line)
		}
	}
	require.Len(t, errors, 1, "%s", out)
	for _, word := range []string{"libibverbs-dev", "librdmacm-dev", "-tags noibverbs", "infiniband/verbs.h"} {
		require.Contains(t, errors[0], word)
	}
}
