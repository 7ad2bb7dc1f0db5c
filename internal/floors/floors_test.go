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

// floorOf says where each package stands; docs/architecture.md draws it. The code of a package
// imports lower floors only. A star stands for one path element.
var floorOf = map[string]int{
	"cmd/*":      mains, // the only place where devices are chosen
	"examples/*": mains,
	"bench/*":    mains,

	"preload": mains, // a library that C programs load

	"testbed/guesttest/*": mains, // tests only, run in the guest
	"testbed/programs":    mains, // tests only
	"testbed/soak":        mains,

	"cmd/goverbs/internal/cli":      11,
	"cmd/goverbs/internal/demo":     10,
	"cmd/goverbs/internal/rping":    10,
	"cmd/goverbs/internal/fabrics":  10,
	"cmd/goverbs/internal/run":      10,
	"cmd/goverbs/internal/devices":  parts,
	"cmd/goverbs/internal/output":   parts,
	"cmd/goverbs/internal/shutdown": parts,
	"cmd/goverbs/internal/version":  parts,

	"compat/dat": 8,

	"compat/ibcompat":                 7,
	"compat/ibcompat/internal/wire":   0,
	"compat/ibcompat/internal/engine": 5,
	"compat/ibcompat/scenario":        8,

	"goverbstest": 7, // for tests of programs; it uses suites

	"verbstest":         suites, // nothing below imports these
	"usiw/usiwtest":     suites,
	"usiw/capture":      suites,
	"testbed/handles":   suites,
	"testbed/load":      suites,
	"internal/rdmatest": suites,
	"internal/abitest":  suites,

	"cmd/goverbs/internal/clitest": suites,

	"usiw": 5,

	"internal/forward": 5,

	"rsocket": 5,

	"cm":  4,
	"ext": 4,

	"internal/regmem": 4,
	"internal/netdev": 4,

	"usiw/internal/testhook": 4, // imported by siw and usiw/usiwtest only

	"internal/ibverbs":                 0,
	"internal/ibverbs/ibverbstest":     1, // imported by tests only
	"internal/ibverbs/uverbs":          0,
	"internal/ibverbs/ksiw/ring/queue": 0,

	"verbs":                3,
	"internal/iwarp/rdmap": 3,

	"internal/iwarp/ddp": 2,

	"internal/iwarp/mpa": 1,

	"internal/lifetime":  0,
	"internal/show":      0,
	"internal/eventfd":   1,
	"internal/queue":     1,
	"internal/backlog":   0,
	"internal/refusal":   0,
	"internal/errname":   0,
	"internal/race":      0,
	"internal/runenv":    0,
	"internal/dynlib":    0,
	"internal/mapmem":    0,
	"internal/calllock":  1,
	"internal/fakeverbs": 1, // imported by tests of verbs and cm only
	"internal/asleep":    0, // imported by tests and suites only

	"internal/testprogram": 0, // imported by tests and suites only
	"internal/kerneltest":  0, // imported by tests and the soak only

	"internal/floors": 0,
	"internal/guide":  0, // tests only
}

const (
	suites = 6
	parts  = 9 // from here on up: parts of commands
	mains  = 12
)

// library reports whether a package must do with few dependencies: all but commands, test suites
// and side packages.
func library(rel string) bool {
	f, ok := floor(floorOf, rel)
	return ok && f != suites && f < parts && rel != "goverbstest"
}

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

// load asks go list for every package of the module and all that their code depends on.
func load(t *testing.T, goos, cgo string) graph {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
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
	return g
}

func TestImportsLeadDown(t *testing.T) {
	for _, p := range platforms {
		t.Run(p.name, func(t *testing.T) {
			require.Empty(t, load(t, p.goos, p.cgo).floorFaults(module, floorOf))
		})
	}
}

// The fake defines functions of libibverbs: a program that had it in would find no device of its
// machine.
func TestFakeIsForTestsOnly(t *testing.T) {
	g := load(t, "linux", "1")
	require.Contains(t, g, module+"/internal/fakeverbs")
	for _, p := range g.paths() {
		require.NotContains(t, g[p].Imports, module+"/internal/fakeverbs", p)
	}
}

func TestFloorFaultsAreFound(t *testing.T) {
	rules := map[string]int{"cmd/*": 2, "upper": 1, "beside": 1, "lower": 0}
	for _, c := range []struct {
		name string
		from string
		to   []string
		want []string
	}{
		{"down", "upper", []string{"m/lower"}, nil},
		{"outside of the module", "upper", []string{"fmt", "m2/upper", "C"}, nil},
		{"a pattern", "cmd/tool", []string{"m/upper", "m/lower"}, nil},
		{"up", "lower", []string{"m/upper"}, []string{"lower (floor 0) imports upper (floor 1)"}},
		{"up to a pattern", "lower", []string{"m/cmd/tool"}, []string{"lower (floor 0) imports cmd/tool (floor 2)"}},
		{"sideways", "upper", []string{"m/beside"}, []string{"upper (floor 1) imports beside (floor 1)"}},
		{"two", "lower", []string{"m/upper", "m/beside"}, []string{
			"lower (floor 0) imports upper (floor 1)", "lower (floor 0) imports beside (floor 1)"}},
		{"no floor", "attic", []string{"m/lower"}, []string{"attic has no floor"}},
		{"below a pattern", "cmd/tool/part", nil, []string{"cmd/tool/part has no floor"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graph{"m/" + c.from: {ImportPath: "m/" + c.from, Imports: c.to}}
			require.Equal(t, c.want, g.floorFaults("m", rules))
		})
	}
	require.Equal(t, []string{". has no floor"}, graph{"m": {ImportPath: "m"}}.floorFaults("m", rules),
		"a package at the top")
}

func TestLibraryDependencies(t *testing.T) {
	for _, p := range platforms {
		t.Run(p.name, func(t *testing.T) {
			require.Empty(t, load(t, p.goos, p.cgo).dependencyFaults(module, library, allowedDependency))
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
	for _, rel := range []string{"verbs", "cm", "ext", "usiw", "internal/iwarp/mpa", "internal/iwarp/ddp",
		"internal/iwarp/rdmap", "rsocket", "compat/ibcompat", "internal/lifetime"} {
		require.True(t, library(rel), rel)
	}
	for _, rel := range []string{"cmd/goverbs", "cmd/goverbs/internal/cli", "cmd/goverbs/internal/devices",
		"examples/writeimm", "verbstest", "usiw/capture", "goverbstest", "unknown"} {
		require.False(t, library(rel), rel)
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
