// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package dynlib

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// list names functions; a question mark before a name makes it optional.
func list(names ...string) func(int) (string, bool) {
	return func(i int) (string, bool) {
		if i >= len(names) {
			return "", false
		}
		name, optional := strings.CutPrefix(names[i], "?")
		return name, optional
	}
}

// compile builds a program or a library from C source and returns its path.
func compile(t *testing.T, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "source.c"), filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	text, err := exec.Command("go", "env", "CC").Output()
	require.NoError(t, err)
	cc := append(strings.Fields(string(text)), "-o", out, file)
	text, err = exec.Command(cc[0], append(cc[1:], flags...)...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

func TestLoad(t *testing.T) {
	file := compile(t, "libdynlib_test.so", "int old(void) { return 7; }\nint young(void) { return 8; }\n", "-shared",
		"-fPIC")
	found := make(map[int]uintptr)
	set := func(i int, address uintptr) { found[i] = address }
	require.NoError(t, Load(file, list("old", "?younger", "?young"), set))
	require.Len(t, found, 3)
	require.NotZero(t, found[0])
	require.Zero(t, found[1], "an optional one that is missing")
	require.NotZero(t, found[2])
	require.NotEqual(t, found[0], found[2])

	err := Load(file, list("old", "younger"), set)
	require.EqualError(t, err, "library "+file+" is too old: it has no younger")
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, file, e.Library)
}

func TestNoLibrary(t *testing.T) {
	err := Load("libdynlib_missing.so.1", list("f"), func(int, uintptr) { t.Error("there is no function") })
	require.ErrorContains(t, err, "library libdynlib_missing.so.1 not found: ")
	file := filepath.Join(t.TempDir(), "libdynlib_text.so")
	require.NoError(t, os.WriteFile(file, []byte("no library"), 0o600))
	require.ErrorContains(t, Load(file, list("f"), nil), "library "+file+" cannot be opened: ")
}

// TestSubstitute: a substitute is asked before any library is opened.
func TestSubstitute(t *testing.T) {
	defer func() { Substitute = nil }()
	Substitute = func(name string) uintptr { return uintptr(len(name)) }
	var got uintptr
	require.NoError(t, Load("libdynlib_missing.so.1", list("four"), func(_ int, address uintptr) { got = address }))
	require.EqualValues(t, 4, got)
}

// TestStatic: in a statically linked program a library would bring in a second C library, whose
// errno nothing reads.
func TestStatic(t *testing.T) {
	const inside = "GOVERBS_TEST_STATIC"
	if file := os.Getenv(inside); file != "" {
		require.EqualError(t, Load(file, list("call"), nil),
			"library "+file+" cannot be used by a statically linked program: it would bring a second C library")
		return
	}
	file := compile(t, "libdynlib_test.so", "#include <errno.h>\nint call(void) { return errno; }\n", "-shared",
		"-fPIC")
	program := filepath.Join(t.TempDir(), "static.test")
	text, err := exec.Command("go", "test", "-c", "-ldflags=-extldflags=-static", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	cmd := exec.Command(program, "-test.run=^TestStatic$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"="+file)
	text, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "--- PASS: TestStatic")
}
