// SPDX-License-Identifier: BSD-3-Clause

package floors

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/goverbs/goverbs"
	top    = "../.." // the module's directory, from this package's
)

// apart lists packages whose code must not depend on others, directly or indirectly. A name that
// ends in "/..." includes all packages below it.
var apart = []struct {
	packages, from []string
	why            string
}{
	{[]string{"verbs", "cm", "rsocket", "internal/forward"}, []string{"usiw/...", "internal/iwarp/..."},
		"handles, and what is built on handles alone, work on every device and know no protocol of the wire"},
	{[]string{"ext", "compat/...", "verbstest"}, []string{"usiw/..."},
		"programs and tests choose the device, not libraries"},
	{[]string{"internal/iwarp/...", "compat/ibcompat/internal/wire"}, []string{"verbs"},
		"codecs know no handles"},
	{[]string{"internal/ibverbs/..."}, []string{"verbs"},
		"drivers stand below the ordinary code"},
}

// forTests are packages that only tests and other packages for tests import. So are all whose names
// end in "test", see isForTests.
var forTests = []string{"internal/asleep", "internal/fakeverbs", "internal/testprogram", "testbed/..."}

// isForTests reports whether a package is for tests only.
func isForTests(rel string) bool {
	return strings.HasSuffix(rel, "test") || matches(forTests, rel)
}

// free are packages that may depend on other modules: parts of commands, and test suites. Programs
// may too.
var free = []string{"cmd/...", "goverbstest", "usiw/capture", "verbstest", "internal/abitest", "internal/rdmatest",
	"testbed/handles"}

// allowedDependency reports whether a library may depend on a package that is neither of the module
// nor of the standard library.
func allowedDependency(p string) bool {
	return strings.HasPrefix(p, "golang.org/x/sys/") || strings.HasPrefix(p, "golang.org/x/sync/")
}

// platforms are the builds whose imports are looked at.
var platforms = []struct{ name, goos, cgo string }{
	{"linux with cgo", "linux", "1"},
	{"linux", "linux", "0"},
	{"darwin", "darwin", "0"},
	{"windows", "windows", "0"},
}

// loaded are the graphs that go list was asked for, by platform.
var loaded = make(map[[2]string]graph)

// load asks go list for every package of the module and all that their code depends on.
func load(t *testing.T, goos, cgo string) graph {
	t.Helper()
	if g, ok := loaded[[2]string{goos, cgo}]; ok {
		return g
	}
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Name,Standard,GoFiles,CgoFiles,Imports", "./...")
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED="+cgo)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", &stderr)
	g := make(graph)
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		g[p.ImportPath] = p
	}
	require.Contains(t, g, module+"/verbs")
	loaded[[2]string{goos, cgo}] = g
	return g
}

// TestApart checks the rules of imports that the floors alone do not show.
func TestApart(t *testing.T) {
	for _, p := range platforms {
		t.Run(p.name, func(t *testing.T) {
			g := load(t, p.goos, p.cgo)
			for _, rule := range apart {
				require.Empty(t, g.chains(module, rule.packages, rule.from), rule.why)
			}
		})
	}
	// A rule about a package that was moved says nothing.
	g := load(t, "linux", "1")
	for _, rule := range apart {
		for _, pattern := range append(rule.packages, rule.from...) {
			require.True(t, g.has(module, pattern), "no package is %s", pattern)
		}
	}
}

// TestForTests checks that no program contains packages for tests, other than a program of testbed.
func TestForTests(t *testing.T) {
	g := load(t, "linux", "1")
	for _, pattern := range append(forTests, free...) {
		require.True(t, g.has(module, pattern), "no package is %s", pattern)
	}
	require.Empty(t, g.importers(module, isForTests))
}

// TestFakeIsForTestsOnly is stricter than TestForTests: internal/fakeverbs defines the functions of
// libibverbs, so a test helper that imported it would hide the machine's devices from every test.
func TestFakeIsForTestsOnly(t *testing.T) {
	g := load(t, "linux", "1")
	require.Contains(t, g, module+"/internal/fakeverbs")
	for _, p := range g.paths() {
		require.NotContains(t, g[p].Imports, module+"/internal/fakeverbs", p)
	}
}

func TestChainsAreFound(t *testing.T) {
	g := graph{
		"m/a":   {Imports: []string{"m/b", "fmt"}},
		"m/a/x": {Imports: []string{"fmt"}},
		"m/ab":  {Imports: []string{"m/d"}},
		"m/b":   {Imports: []string{"m/c"}},
		"m/c":   {},
		"m/d":   {Imports: []string{"m/d/e"}},
		"m/d/e": {Imports: []string{"m2/c"}},
	}
	for _, c := range []struct{ from, to, want string }{
		{"a", "d", ""},
		{"a", "a", ""}, // not from itself
		{"c", "a", ""}, // not backwards
		{"a/...", "d/...", ""},
		{"ab", "c", ""}, // of another module
		{"a", "b", "m/a -> m/b"},
		{"a", "c", "m/a -> m/b -> m/c"},
		{"a/...", "c", "m/a -> m/b -> m/c"},
		{"ab", "d/...", "m/ab -> m/d"},
		{"ab", "d/e", "m/ab -> m/d -> m/d/e"},
	} {
		require.Equal(t, c.want, strings.Join(g.chains("m", []string{c.from}, []string{c.to}), "; "), c)
	}
	require.Len(t, g.chains("m", []string{"a", "ab"}, []string{"b", "d"}), 2)
	for _, pattern := range []string{"a", "a/...", "d/e", "d/..."} {
		require.True(t, g.has("m", pattern), pattern)
	}
	for _, pattern := range []string{"e", "fmt", "c/x", "e/..."} {
		require.False(t, g.has("m", pattern), pattern)
	}
}

func TestImportersAreFound(t *testing.T) {
	g := graph{
		"m/lib":      {Imports: []string{"m/libtest"}},
		"m/libtest":  {Imports: []string{"m/moretest"}},
		"m/moretest": {Imports: []string{"m/lib2", "other/libtest"}},
		"m/lib2":     {Imports: []string{"fmt", "other/libtest"}},
	}
	require.Equal(t, []string{"lib imports libtest, which is for tests"}, g.importers("m", isForTests))
}

func TestLibraryDependencies(t *testing.T) {
	for _, p := range platforms {
		t.Run(p.name, func(t *testing.T) {
			g := load(t, p.goos, p.cgo)
			require.Empty(t, g.dependencyFaults(module, g.library, allowedDependency))
		})
	}
}

// What programs import for their tests brings in only what package usiw/capture needs to write
// files.
func TestTestDependencies(t *testing.T) {
	g := load(t, "linux", "0")
	require.Contains(t, g, module+"/goverbstest")
	require.Empty(t, g.dependencyFaults(module, func(rel string) bool { return rel == "goverbstest" },
		func(p string) bool {
			return allowedDependency(p) || strings.HasPrefix(p, "github.com/gopacket/gopacket") ||
				p == "golang.org/x/net/bpf"
		}))
}

func TestLibraries(t *testing.T) {
	g := load(t, "linux", "0")
	for _, rel := range []string{"verbs", "cm", "ext", "usiw", "internal/iwarp/mpa", "internal/iwarp/ddp",
		"internal/iwarp/rdmap", "rsocket", "compat/ibcompat", "compat/dat", "internal/lifetime", "usiw/usiwtest",
		"internal/asleep"} {
		require.True(t, g.library(rel), rel)
	}
	for _, rel := range []string{"cmd/goverbs", "cmd/goverbs/internal/cli", "cmd/goverbs/internal/devices",
		"examples/writeimm", "verbstest", "usiw/capture", "goverbstest", "unknown"} {
		require.False(t, g.library(rel), rel)
	}
}

func TestDependencyFaultsAreFound(t *testing.T) {
	g := graph{
		"m/lib":               {Imports: []string{"m/below", "fmt", "unsafe", "C"}},
		"m/below":             {Imports: []string{"golang.org/x/sys/unix", "fmt"}},
		"m/tool":              {Imports: []string{"example.org/big"}},
		"fmt":                 {Standard: true, Imports: []string{"vendor/golang.org/x/text"}},
		"golang.org/x/sync/e": {Imports: []string{"fmt"}},
		"example.org/big":     {Imports: []string{"example.org/bigger"}},

		"golang.org/x/sys/unix":    {Imports: []string{"fmt"}},
		"vendor/golang.org/x/text": {Standard: true},
	}
	isLibrary := func(rel string) bool { return rel != "tool" }
	require.Empty(t, g.dependencyFaults("m", isLibrary, allowedDependency), "a tool may depend on anything")

	g["m/below"] = pkg{Imports: []string{"golang.org/x/sync/e", "example.org/big"}}
	require.Equal(t, []string{
		"dependency not allowed: m/below -> example.org/big",
		"dependency not allowed: m/lib -> m/below -> example.org/big",
	}, g.dependencyFaults("m", isLibrary, allowedDependency))

	g["m/below"] = pkg{Imports: []string{"golang.org/x/sys/unix"}}
	g["golang.org/x/sys/unix"] = pkg{Imports: []string{"golang.org/x/net/route"}}
	require.Equal(t, []string{
		"dependency not allowed: m/below -> golang.org/x/sys/unix -> golang.org/x/net/route",
		"dependency not allowed: m/lib -> m/below -> golang.org/x/sys/unix -> golang.org/x/net/route",
	}, g.dependencyFaults("m", isLibrary, allowedDependency), "also of what is allowed")
}

func TestSources(t *testing.T) {
	var faults []string
	var files int
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		if d.IsDir() && (rel == ".git" || rel == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		if rel = filepath.ToSlash(rel); rel == "docker/goverbs" {
			return nil // a binary that the Makefile puts there
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files++
		faults = append(faults, sourceFaults(rel, src)...)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, faults)
	require.Greater(t, files, 50, "the walk has missed the module")
}

func TestSourceFaultsAreFound(t *testing.T) {
	const head = "// " + licence + "\n\npackage x\n\n"
	for _, c := range []struct {
		name, file, src string
		faults          int
	}{
		{"plain", "verbs/x.go", head + `import "fmt"`, 0},
		{"no licence", "verbs/x.go", "package x\n", 1},
		{"another licence", "verbs/x.go", "// SPDX-License-Identifier: MIT\npackage x\n", 1},
		{"licence not first", "verbs/x.go", "package x\n// " + licence + "\n", 1},
		{"licence in a shell's comment", "verbs/x.go", "# " + licence + "\npackage x\n", 2}, // nor is it Go
		{"source for the kernel", "kernel/x/y.cocci", "// " + kernelLicence + "\n", 0},
		{"source for the kernel, another licence", "kernel/x/y.c", "// " + licence + "\n", 1},
		{"script", "scripts/x", "#!/bin/sh\n# " + licence + "\n", 0},
		{"script without licence", "scripts/x", "#!/bin/sh\nset -e\n", 1},
		{"makefile without licence", "Makefile", "all:\n", 1},
		{"compose file without licence", "docker/compose.yaml", "services:\n", 1},
		{"prose", "README.md", "# goverbs\n", 0},
		{"unsafe", "verbs/x.go", head + `import "unsafe"`, 1},
		{"unsafe under another name", "verbs/x.go", head + `import u "unsafe"`, 1},
		{"unsafe among others", "verbs/x.go", head + "import (\n\t\"fmt\"\n\t\"unsafe\"\n)\n", 1},
		{"unsafe in a test", "verbs/x_test.go", head + `import "unsafe"`, 1},
		{"unsafe behind a build tag", "verbs/x_linux.go",
			"// " + licence + "\n\n//go:build linux\n\npackage x\n\nimport \"unsafe\"\n", 1},
		{"unsafe and said so", "verbs/x_unsafe.go", head + `import "unsafe"`, 0},
		{"unsafe test and said so", "verbs/x_unsafe_test.go", head + `import "unsafe"`, 0},
		{"unsafe beside C", "verbs/cgo_verbs.go", head + "import \"C\"\nimport \"unsafe\"\n", 0},
		{"C", "verbs/x.go", head + `import "C"`, 1},
		{"C in a file of the right name elsewhere", "usiw/cgo_verbs.go", head + `import "C"`, 1},
		{"C in a second file", "verbs/cgo_verbs_x.go", head + `import "C"`, 1},
		{"C in cm", "cm/cgo_cm.go", head + `import "C"`, 0},
		{"C in the fake", "internal/fakeverbs/fake.go", head + `import "C"`, 0},
		{"not Go", "verbs/x.go", head + "import {", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Len(t, sourceFaults(c.file, []byte(c.src)), c.faults)
		})
	}
}
