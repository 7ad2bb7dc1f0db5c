// SPDX-License-Identifier: BSD-3-Clause

package guide

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	top  = "../.." // the module's directory, from this package's
	path = "docs/guide.md"
)

// read returns a file of the module.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(top, name))
	require.NoError(t, err)
	return string(b)
}

// source is a link to a file of Go, from which the blocks after it are taken.
var source = regexp.MustCompile(`\]\(\.\./([a-z/_]+\.go)\)`)

// omission is the line that stands for lines of the file which the guide leaves out.
const omission = "// ..."

// faults compares the blocks of Go in a text with the files from which they are taken: all lines of
// a block, with their comments, are consecutive lines of the file, but for omissions. Indentation
// and blank lines do not count.
func faults(text string, file func(name string) string) (blocks int, found []string) {
	var name string
	var block []string
	in := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "```go":
			in, block = true, nil
			blocks++
		case in && line == "```":
			in = false
			if name == "" {
				found = append(found, fmt.Sprintf("block %d: no file is named before it", blocks))
			} else if missing := excerpt(block, file(name)); missing != "" {
				found = append(found, fmt.Sprintf("block %d: not in %s as it stands: the part that begins with %q",
					blocks, name, missing))
			}
		case in:
			block = append(block, line)
		default:
			for _, m := range source.FindAllStringSubmatch(line, -1) {
				name = m[1]
			}
		}
	}
	return blocks, found
}

// excerpt returns the first line of the part of a block that the file does not have behind the
// parts before it, "" if it has all.
func excerpt(block []string, file string) string {
	lines := plain(strings.Split(file, "\n"))
	var part []string
	for _, line := range append(plain(block), omission) {
		if line != omission {
			part = append(part, line)
			continue
		}
		for len(lines) >= len(part) && !slices.Equal(lines[:len(part)], part) {
			lines = lines[1:]
		}
		if len(lines) < len(part) {
			return part[0]
		}
		lines, part = lines[len(part):], nil
	}
	return ""
}

// plain returns lines without indentation, and no blank ones.
func plain(lines []string) []string {
	var all []string
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// The code of the guide is that of examples, which run as tests.
func TestCode(t *testing.T) {
	files := make(map[string]bool)
	blocks, found := faults(read(t, path), func(name string) string {
		files[name] = true
		return read(t, name)
	})
	require.Empty(t, found)
	require.Greater(t, blocks, 5)
	for name := range files {
		if strings.HasSuffix(name, "_test.go") {
			require.Contains(t, read(t, name), "// Output", name)
			continue
		}
		require.True(t, strings.HasPrefix(name, "examples/"), "%s is neither an example nor a program of examples/",
			name)
		require.Contains(t, read(t, filepath.Dir(name)+"/main_test.go"), "// Output", name)
	}
}

func TestCodeFaultsAreFound(t *testing.T) {
	const code = "package x\n\nfunc f() {\n\ta() // one\n\n\tb()\n\tc()\n\td()\n}\n"
	for _, c := range []struct {
		block  string
		faults int
	}{
		{"a() // one\nb()", 0},
		{"func f() {\n\ta() // one\n\n\n\tb()\n\t// ...\n\td()\n}", 0},
		{"a()\nb()", 1},             // another comment
		{"a() // one\nc()", 1},      // a line is missing
		{"b()\n// ...\na()", 1},     // another order
		{"a() // one\nb()\nx()", 1}, // not there
		{"// ...\nd()\n}\n}", 1},    // beyond the end
	} {
		text := "From [x](../x/x.go):\n\n```go\n" + c.block + "\n```\n\n```\nno Go\n```\n"
		blocks, found := faults(text, func(name string) string {
			require.Equal(t, "x/x.go", name)
			return code
		})
		require.Equal(t, 1, blocks)
		require.Len(t, found, c.faults, c.block)
	}
	_, found := faults("```go\na()\n```\n", nil)
	require.Len(t, found, 1, "no file")
}
