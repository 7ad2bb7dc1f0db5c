// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// read returns a file of the module.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, name))
	require.NoError(t, err)
	return string(text)
}

// goLines returns the lines of code in a text's Go blocks, without indentation and comments.
func goLines(text string) []string {
	var lines []string
	in := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			in = line == "```go"
		case in:
			if line = withoutComment(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// withoutComment cuts a comment off a line in which "//" does not stand in a string.
func withoutComment(line string) string {
	line, _, _ = strings.Cut(line, "//")
	return strings.TrimSpace(line)
}

// missing returns the first of lines that code does not have behind the ones before it, "" if it
// has them all in order.
func missing(lines []string, code string) string {
	rest := strings.Split(code, "\n")
next:
	for _, want := range lines {
		for i, have := range rest {
			if withoutComment(have) == want {
				rest = rest[i+1:]
				continue next
			}
		}
		return want
	}
	return ""
}

// The code in the README is part of a program that is built and run as a test.
func TestReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	require.NoError(t, err)
	lines := goLines(string(readme))
	require.Greater(t, len(lines), 10)
	example, err := os.ReadFile(filepath.Join(top, "examples/writeimm/main.go"))
	require.NoError(t, err)
	require.Empty(t, missing(lines, string(example)), "not in examples/writeimm/main.go, or not in this order")
}

func TestMissingLinesAreFound(t *testing.T) {
	text := "# x\n\n```\nno code\n```\n\n```go\na := 1 // one\n\n// about b\n\tb := 2\n```\n"
	lines := goLines(text)
	require.Equal(t, []string{"a := 1", "b := 2"}, lines)
	require.Empty(t, missing(lines, "\ta := 1\n\tb++\n\tb := 2 // two\n"))
	require.Equal(t, "b := 2", missing(lines, "b := 2\na := 1\n"))
	require.Equal(t, "a := 1", missing(lines, "a := 10\nb := 2\n"))
}

// Documents name targets that the Makefile has, and files that are there.
func TestDocuments(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	require.NoError(t, err)
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	command := regexp.MustCompile("(?m)(?:`|^)make ([a-z-]+)")
	link := regexp.MustCompile(`\]\(([^):#]+)\)`)
	documents := []string{"README.md", "CONTRIBUTING.md", "testbed/README.md"}
	found, err := filepath.Glob(filepath.Join(top, "docs/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	for _, path := range found {
		documents = append(documents, filepath.Join("docs", filepath.Base(path)))
	}
	for _, doc := range documents {
		text, err := os.ReadFile(filepath.Join(top, doc))
		require.NoError(t, err)
		for _, m := range command.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, targets, m[1], doc)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(top, filepath.Dir(doc), m[1]))
			require.NoError(t, err, doc)
		}
	}
}

// What docs/interop.md says of Linux is shown by the tests that it names.
func TestInteropNamesTests(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "docs/interop.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(top, "testbed/guesttest/interop/*_test.go"))
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(b)
	}
	names := regexp.MustCompile("`(Test\\w+)").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(names), 20)
	for _, m := range names {
		require.Contains(t, code.String(), "\nfunc "+m[1]+"(t *testing.T) {")
	}
}
