// SPDX-License-Identifier: BSD-3-Clause

// Package abitest compares hand-written declarations of a C library's binary interface with the
// library's own headers, for tests.
package abitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ABI is what is compared. With GOVERBS_SYSTEM_HEADERS defined the header includes the library's
// own ones instead of its declarations.
type ABI struct {
	Header    string   // the file
	Functions string   // a call of its macro that lists functions, for example "IBV_FUNCTIONS(SAME, SAME)"
	Partial   []string // types that only the library allocates, which may end early: "struct ibv_qp"
	Invented  []string // members that the library's headers do not have: "unused1"
	Sources   []string // C files that include the header, which must compile either way
}

// Check fails the test where a field, a number, a type's size or a function's type differs. It
// needs the library's headers.
func (a ABI) Check(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile(a.Header)
	require.NoError(t, err)
	found, err := parse(string(source))
	require.NoError(t, err, a.Header)
	require.NotEmpty(t, found.fields)
	require.NotEmpty(t, found.numbers)

	program := a.program(found)
	theirs := run(t, program, "-DGOVERBS_SYSTEM_HEADERS")
	require.Equal(t, theirs, run(t, program), "the library's headers, and %s", a.Header)

	compile(t, fmt.Sprintf("#include %q\n#define SAME(result, name, parameters) result(*check_##name) parameters = name;\n%s\n",
		absolute(t, a.Header), a.Functions), "-DGOVERBS_SYSTEM_HEADERS", "-c")
	for _, s := range a.Sources {
		for _, flags := range [][]string{{"-c"}, {"-c", "-DGOVERBS_SYSTEM_HEADERS"}} {
			compile(t, fmt.Sprintf("#include %q\n", absolute(t, s)), flags...)
		}
	}
}

// program returns the source of a program that prints the place and the size of every field, the
// size of every type that is complete, and every number.
func (a ABI) program(d *declarations) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#include <stdio.h>\n#include %q\nint main(void) {\n", a.path())
	for _, f := range d.fields {
		if !slices.Contains(a.Invented, f.path) {
			fmt.Fprintf(&b, "\tprintf(\"%s.%s at %%zu, %%zu bytes\\n\", offsetof(%[1]s, %[2]s), sizeof(((%[1]s *)0)->%[2]s));\n", f.typ, f.path)
		}
	}
	for _, typ := range d.types {
		if !slices.Contains(a.Partial, typ) {
			fmt.Fprintf(&b, "\tprintf(\"%s, %%zu bytes\\n\", sizeof(%[1]s));\n", typ)
		}
	}
	for _, n := range d.numbers {
		fmt.Fprintf(&b, "\tprintf(\"%s %%lld\\n\", (long long)%[1]s);\n", n)
	}
	return b.String() + "\treturn 0;\n}\n"
}

func (a ABI) path() string {
	p, err := filepath.Abs(a.Header)
	if err != nil {
		return a.Header
	}
	return p
}

func absolute(t *testing.T, file string) string {
	t.Helper()
	p, err := filepath.Abs(file)
	require.NoError(t, err)
	return p
}

// run compiles a program and returns what it prints.
func run(t *testing.T, source string, flags ...string) string {
	t.Helper()
	out, err := exec.Command(compile(t, source, flags...)).Output()
	require.NoError(t, err)
	return string(out)
}

// compile compiles a source without any warning and returns the file that is made.
func compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "check.c"), filepath.Join(dir, "check")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		text, err := exec.Command("go", "env", "CC").Output()
		require.NoError(t, err)
		cc = strings.Fields(string(text))
	}
	args := append(cc[1:], "-Wall", "-Wextra", "-Werror", "-o", out, file)
	text, err := exec.Command(cc[0], append(args, flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// declarations is what stands in a header.
type declarations struct {
	types   []string // "struct ibv_wc"
	fields  []field
	numbers []string // of enums, and macros
}

// field is a member of a type by its path, for example "wr.rdma.rkey" of "struct ibv_send_wr".
type field struct{ typ, path string }

var (
	forward = regexp.MustCompile(`^struct \w+;$`)
	opened  = regexp.MustCompile(`^(struct|union|enum)(?: (\w+))? \{$`)
	closed  = regexp.MustCompile(`^\}(?: (\w+))?;$`)
	number  = regexp.MustCompile(`^(\w+) = [-\w]+,$`)
	macro   = regexp.MustCompile(`^#define ([A-Z]\w+) \w+$`)
	pointer = regexp.MustCompile(`\(\*(\w+)(?:\[\d+\])?\)\(.*\);$`) // to a function
	member  = regexp.MustCompile(`(\w+)(?:\[\d+\])?;$`)
)

// parse reads the declarations of a header, one field or number a line. A line that it does not
// understand is an error, so that nothing is passed over.
func parse(source string) (*declarations, error) {
	_, source, ok := strings.Cut(source, "\n#else\n")
	source, _, ended := strings.Cut(source, "\n#endif // GOVERBS_SYSTEM_HEADERS\n")
	if !ok || !ended {
		return nil, fmt.Errorf("there is nothing between #else and #endif // GOVERBS_SYSTEM_HEADERS")
	}
	d := new(declarations)
	type level struct {
		kind  string
		first int // of its fields
	}
	var levels []level
	for line := range strings.Lines(source) {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		inEnum := len(levels) > 0 && levels[len(levels)-1].kind == "enum"
		switch {
		case line == "", strings.HasPrefix(line, "#include "), strings.HasPrefix(line, "#define __"),
			forward.MatchString(line):
		case macro.MatchString(line):
			d.numbers = append(d.numbers, macro.FindStringSubmatch(line)[1])
		case opened.MatchString(line):
			m := opened.FindStringSubmatch(line)
			if len(levels) == 0 && m[1] != "enum" {
				d.types = append(d.types, m[1]+" "+m[2])
			}
			levels = append(levels, level{m[1], len(d.fields)})
		case len(levels) > 0 && closed.MatchString(line):
			l := levels[len(levels)-1]
			if name := closed.FindStringSubmatch(line)[1]; name != "" {
				for i := range d.fields[l.first:] {
					f := &d.fields[l.first+i]
					f.path = name + "." + f.path
				}
			}
			levels = levels[:len(levels)-1]
		case inEnum && number.MatchString(line):
			d.numbers = append(d.numbers, number.FindStringSubmatch(line)[1])
		case len(levels) > 0 && !inEnum && pointer.MatchString(line):
			d.fields = append(d.fields, field{d.types[len(d.types)-1], pointer.FindStringSubmatch(line)[1]})
		case len(levels) > 0 && !inEnum && member.MatchString(line):
			d.fields = append(d.fields, field{d.types[len(d.types)-1], member.FindStringSubmatch(line)[1]})
		default:
			return nil, fmt.Errorf("%q is not understood", line)
		}
	}
	return d, nil
}
