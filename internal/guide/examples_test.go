// SPDX-License-Identifier: BSD-3-Clause

package guide

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// examples returns the names of the examples of a package that are run: those with an output.
func examples(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(top, dir, "*_test.go"))
	require.NoError(t, err)
	var files []*ast.File
	fset := token.NewFileSet()
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	var run []string
	for _, e := range doc.Examples(files...) {
		if e.Output != "" {
			run = append(run, e.Name)
		}
	}
	return run
}

// Every package that programs can import, and every program of examples/, has an example that is
// run.
func TestPackagesHaveExamples(t *testing.T) {
	cmd := exec.Command("go", "list", "-buildvcs=false", "./...")
	cmd.Dir = top
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := 0
	for p := range strings.FieldsSeq(string(out)) {
		rel := strings.TrimPrefix(p, module+"/")
		switch {
		case strings.Contains("/"+rel+"/", "/internal/"), strings.HasPrefix(rel, "cmd/"),
			strings.HasPrefix(rel, "bench/"), strings.HasPrefix(rel, "testbed/"), rel == "preload":
			continue
		}
		seen++
		require.NotEmpty(t, examples(t, rel), rel)
	}
	require.Greater(t, seen, 11)
	require.Empty(t, examples(t, "internal/guide"), "a package without examples")
}
