// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// The longest lines, in columns, with a tab every four.
const (
	commentColumns = 100
	codeColumns    = 120
	tabColumns     = 4
)

// TestLines checks that comments wrap at 100 columns and code at 120. Columns of string literals do
// not count, because a text that is broken cannot be searched for.
func TestLines(t *testing.T) {
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		for _, line := range tooLong(src) {
			t.Errorf("%s:%s", path, line)
		}
		return err
	})
	require.NoError(t, err)
}

// tooLong describes the lines of a Go file that are too long.
func tooLong(src []byte) (lines []string) {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, func(token.Position, string) {}, scanner.ScanComments)
	texts := map[int]int{}     // columns of string literals in a line
	comments := map[int]bool{} // lines that are a comment
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			for i, text := range strings.Split(string(src), "\n") {
				n, limit := columns(text)-texts[i+1], codeColumns
				if comments[i+1] {
					limit = commentColumns
				}
				if n > limit {
					lines = append(lines, fmt.Sprintf("%d: %d columns, at most %d", i+1, n, limit))
				}
			}
			return lines
		case token.STRING:
			for i, part := range strings.Split(lit, "\n") {
				texts[line+i] += columns(part)
			}
		case token.COMMENT:
			// The preamble of import "C" and directives are not prose.
			if strings.HasPrefix(lit, "// ") && startsLine(src, file.Offset(pos)) {
				comments[line] = true
			}
			if strings.Contains(lit, "://") {
				texts[line] += columns(lit)
			}
		}
	}
}

// startsLine reports whether only tabs are before an offset in its line.
func startsLine(src []byte, offset int) bool {
	for offset > 0 && src[offset-1] == '\t' {
		offset--
	}
	return offset == 0 || src[offset-1] == '\n'
}

// columns is the width of a text from the first column.
func columns(text string) (n int) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		if n++; r == '\t' {
			n += tabColumns - 1 - (n-1)%tabColumns
		}
	}
	return n
}

// TestTooLong checks the check.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("x", 120)
	for src, want := range map[string][]string{
		"package p\n\n// " + long[:97] + "\n":         nil,
		"package p\n\n// " + long[:98] + "\n":         {"3: 101 columns, at most 100"},
		"package p\n\n\t// " + long[:94] + "\n":       {"3: 101 columns, at most 100"},
		"package p\n\n// https://" + long + "\n":      nil,
		"package p\n\nvar " + long[:116] + " int\n":   {"3: 124 columns, at most 120"},
		"package p\n\nvar x int // " + long + "\n":    {"3: 133 columns, at most 120"},
		"package p\n\nvar x = \"" + long + "\"\n":     nil,
		"package p\n\nvar x = `" + long + "\n\t`\n":   nil,
		"package p\n\nvar x, " + long[:112] + " int ": {"3: 124 columns, at most 120"},
	} {
		require.Equal(t, want, tooLong([]byte(src)), src)
	}
}
