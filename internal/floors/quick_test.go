// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// quick returns what scripts/quick.sh does to each package if these files changed.
func quick(t *testing.T, files ...string) map[string]string {
	t.Helper()
	cmd := exec.Command("scripts/quick.sh", "--list", "-")
	cmd.Dir, cmd.Stdin = top, strings.NewReader(strings.Join(files, "\n"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &stderr)
	chosen := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		what, rel, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		chosen[rel] = what
	}
	return chosen
}

// TestQuick checks which packages make quick chooses.
func TestQuick(t *testing.T) {
	require.Empty(t, quick(t), "nothing changed")

	// Documents and scripts concern only the tests that read them.
	texts := map[string]string{"internal/floors": "test", "internal/guide": "test"}
	require.Equal(t, texts, quick(t, "docs/guide.md", "Makefile", "scripts/quick.sh", ".golangci.yml"))

	// A program is tested if it changed itself, and nothing depends on it. Files that are not Go
	// belong to the package above them, and so do files that were removed.
	require.Equal(t, map[string]string{"internal/floors": "test", "internal/guide": "test", "preload": "test",
		"examples/window": "test", "examples/lock": "test", "cmd/goverbs": "test"},
		quick(t, "examples/window/main.go", "examples/lock/removed.go", "preload/shim/ops.c",
			"cmd/goverbs/testdata/x/y"))

	// What depends on a package, by its code, by its tests or through other packages, and nothing
	// else.
	mpa := quick(t, "internal/iwarp/mpa/frame.go")
	require.Equal(t, "test", mpa["internal/iwarp/mpa"])
	require.Equal(t, "test", mpa["ext"], "its code imports mpa")
	require.Equal(t, "part", mpa["usiw"], "its tests take long")
	require.Equal(t, "test", mpa["verbs"], "its tests import usiw")
	require.Equal(t, "vet", mpa["cmd/goverbs"], "a program")
	require.Equal(t, "vet", mpa["testbed/guesttest/suite"], "tests for the guest")
	for _, rel := range []string{"internal/iwarp/ddp", "internal/iwarp/rdmap", "internal/lifetime", "internal/show"} {
		require.NotContains(t, mpa, rel)
	}
	require.Equal(t, "test", quick(t, "usiw/nic.go")["usiw"], "in full, because it changed")
}

// partOf finds tests of which quick.sh runs a part.
var partOf = regexp.MustCompile(`(?m)^func (TestVerbs|TestConformance|TestEndpointRPC|TestHTTP)\(`)

// TestQuickNames checks that the packages and tests that quick.sh names exist: a slow test that was
// renamed would no longer be skipped.
func TestQuickNames(t *testing.T) {
	script := read(t, "scripts/quick.sh")
	g := load(t, "linux", "1")
	limited := regexp.MustCompile(`(?m)^limited=\((.*)\)$`).FindStringSubmatch(script)
	require.NotNil(t, limited)
	for _, rel := range strings.Fields(limited[1]) {
		require.True(t, g.has(module, rel), rel)
		files, err := filepath.Glob(filepath.Join(top, rel, "*_test.go"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(files, func(file string) bool {
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			return partOf.Match(src)
		}), "quick.sh runs no test of %s", rel)
	}
	slow := regexp.MustCompile(`(?m)^slow='\^Test\((.*)\)\$'$`).FindStringSubmatch(script)
	require.NotNil(t, slow)
	var tests strings.Builder
	for _, pattern := range []string{"usiw/*_test.go", "rsocket/*_test.go", "compat/ibcompat/*_test.go"} {
		files, err := filepath.Glob(filepath.Join(top, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			rel, err := filepath.Rel(top, file)
			require.NoError(t, err)
			tests.WriteString(read(t, rel))
		}
	}
	for name := range strings.SplitSeq(slow[1], "|") {
		require.Contains(t, tests.String(), "\nfunc Test"+name+"(t *testing.T) {")
	}
}
