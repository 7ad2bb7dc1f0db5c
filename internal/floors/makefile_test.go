// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeVariable returns the words of a variable of a makefile, which may contain other variables.
func makeVariable(makefile, name string) (words []string) {
	text := strings.ReplaceAll(makefile, "\\\n", " ")
	m := regexp.MustCompile(`(?m)^` + name + `\s*=(.*)$`).FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	for _, word := range strings.Fields(m[1]) {
		if inner, ok := strings.CutPrefix(word, "$("); ok {
			words = append(words, makeVariable(makefile, strings.TrimSuffix(inner, ")"))...)
		} else {
			words = append(words, strings.TrimPrefix(word, "./"))
		}
	}
	return words
}

var (
	dependsOnRace = regexp.MustCompile(`\brace\.Enabled\b|(?m)^func Test\w*Alloc`)
	countsAllocs  = regexp.MustCompile(`(?m)^func Test\w*Alloc`)
)

// TestPlain: make test runs a test without the race detector if it says that it does less with it,
// or counts what is allocated. PLAIN of the Makefile has the packages of such tests, ALLOC the
// packages of those tests of allocation that need cgo.
func TestPlain(t *testing.T) {
	makefile := read(t, "Makefile")
	plain, alloc := makeVariable(makefile, "PLAIN"), makeVariable(makefile, "ALLOC")
	found := 0
	require.NoError(t, filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, "_test.go") {
			return err
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, filepath.Dir(p))
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		without := build.Context{GOOS: "linux", GOARCH: "amd64", Compiler: "gc"}
		builds, err := without.MatchFile(filepath.Dir(p), d.Name())
		if err != nil {
			return err
		}
		switch {
		case strings.HasPrefix(rel, "testbed/guesttest/"): // testbed/suite.list says how these run
		case builds && dependsOnRace.Match(src):
			found++
			require.True(t, matches(plain, rel), "%s is not in PLAIN of the Makefile, see %s", rel, p)
		case !builds && countsAllocs.Match(src):
			found++
			require.True(t, matches(alloc, rel), "%s is not in ALLOC of the Makefile, see %s", rel, p)
		}
		return nil
	}))
	require.Greater(t, found, 20)

	g := load(t, "linux", "1")
	for _, name := range []string{"LONG", "PLAIN", "ALLOC"} {
		require.NotEmpty(t, makeVariable(makefile, name), name)
		for _, pattern := range makeVariable(makefile, name) {
			require.True(t, g.has(module, pattern), "%s of the Makefile: no package is %s", name, pattern)
		}
	}
}

func TestMakeVariable(t *testing.T) {
	const text = "A = ./a ./b/... \\\n\t./c $(B)\nB   = ./x\nBC = ./y\nD ?= ./z\n"
	require.Equal(t, []string{"x"}, makeVariable(text, "B"))
	require.Equal(t, []string{"y"}, makeVariable(text, "BC"))
	require.Equal(t, []string{"a", "b/...", "c", "x"}, makeVariable(text, "A"))
	require.Nil(t, makeVariable(text, "C"))
}
