// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAtLeast checks that versions are compared as numbers, and that anything else is less than any
// version.
func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{"6.12": true, "6.12.73-1-amd64": true, "6.18.44-fc": true,
		"7.0-rc1": true, "10.1": true, "6.1.0-49-amd64": false, "6.9": false, "5.15.0": false, "6": false, "": false,
		"Darwin": false} {
		require.Equal(t, want, atLeast(release, "6.12"), release)
	}
	require.True(t, atLeast("6.4-rc1", "6.4"))
}

// TestExceptions checks that the scenario of each exception exists, and that docs/semantics.md
// describes it in the same words and names the scenario.
func TestExceptions(t *testing.T) {
	text, err := os.ReadFile("../../../docs/semantics.md")
	require.NoError(t, err)
	for _, x := range exceptions {
		named(t, x.scenario)
		_, row, found := strings.Cut(string(text), "\n| "+x.text()+" | ")
		require.True(t, found, x.text())
		row, _, _ = strings.Cut(row, "\n")
		require.Contains(t, row, "`"+x.scenario+"`")
	}
}
