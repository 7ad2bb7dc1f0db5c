// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecord: each kind of measurement has its own place in a document, and leaves everything else
// unchanged.
func TestRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables.md")
	content := func() string {
		doc, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(doc)
	}
	require.NoError(t, record(file, beginMark, "new"))
	require.Equal(t, "# Performance\n\n"+beginMark+"\n\nnew\n"+endMark+"\n", content())

	doc := func(quiet, busy string) string {
		return "top\n" + beginMark + quiet + endMark + "\nbetween\n" + busyMark + busy + endMark + "\nbottom\n"
	}
	require.NoError(t, os.WriteFile(file, []byte(doc("\n", "\nold\n")), 0o644))
	require.NoError(t, record(file, busyMark, "b"))
	require.Equal(t, doc("\n", "\n\nb\n"), content())
	require.NoError(t, record(file, beginMark, "a"))
	require.NoError(t, record(file, beginMark, "c"))
	require.Equal(t, doc("\n\nc\n", "\n\nb\n"), content())

	for _, text := range []string{"", endMark, beginMark, endMark + beginMark, busyMark + endMark} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		require.ErrorContains(t, record(file, beginMark, "x"), file, text)
		require.Equal(t, text, content())
	}
	require.Error(t, record(filepath.Dir(file), beginMark, "x"), "a directory")
}
