// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo

package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/runenv"
)

var update = flag.Bool("update", false, "write the lists of docs/run.md")

// public matches the public functions of libibverbs and librdmacm. Functions that only drivers call
// have other names.
var public = regexp.MustCompile(`^(_?ibv_|rdma_|r[a-z]+$|(mbps|mult)_to_ibv_rate$)`)

// symbols returns the public functions that a library defines.
func symbols(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := elf.Open(file)
	require.NoError(t, err)
	defer f.Close()
	all, err := f.DynamicSymbols()
	require.NoError(t, err)
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && public.MatchString(s.Name) &&
			!slices.Contains(names, s.Name) && !strings.Contains(s.Version, "PRIVATE") {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// library returns the file of an installed library.
func library(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/lib/*-linux-gnu*", "/lib/*-linux-gnu*", "/usr/lib64", "/usr/lib"} {
		if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
			return found[0]
		}
	}
	require.FailNow(t, "not installed", name)
	return ""
}

// refusals returns what the shim reports as unsupported.
func refusals(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("shim/*.c")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(
			`(?m)^(?:NULL_OF\([^,]*, |(?:ERR|VOID)_OF\(|REFUSED\()(\w+), \(|(?:refused\("|return say_once\("|{ say_once\(")([^"]+)"`).FindAllStringSubmatch(string(src), -1) {
			name := m[1] + m[2]
			if file == "shim/ops.c" && m[1] != "" {
				name = "ibv_" + name
			}
			if !slices.Contains(all, name) && name != "ibv_" {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestFunctions checks that the shim implements every public function of the libraries, or that the
// function is known to need no device, and that docs/run.md lists them all. go test ./preload -run
// TestFunctions -args -update writes the lists.
func TestFunctions(t *testing.T) {
	require.NoError(t, build())
	theirs := append(symbols(t, library(t, "libibverbs.so.1")), symbols(t, library(t, "librdmacm.so.1"))...)
	require.Greater(t, len(theirs), 100)
	ours, refused := symbols(t, filepath.Join(dir, runenv.Shim)), refusals(t)
	require.Greater(t, len(refused), 40)
	var offered, left []string
	for _, name := range theirs {
		switch {
		case slices.Contains(refused, name):
		case slices.Contains(ours, name):
			offered = append(offered, name)
		default:
			left = append(left, name)
		}
	}
	for _, name := range left {
		require.True(t, leftToThem.MatchString(name), "%s needs a device, and the shim does not have it", name)
	}
	list := func(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
	want := fmt.Sprintf("Offered: %s.\n\nRefused: %s.\n\nLeft to the libraries: %s.\n", list(offered), list(refused),
		list(left))
	const begin, end = "<!-- functions -->\n", "<!-- end -->\n"
	doc, err := os.ReadFile("../docs/run.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(doc), begin)
	require.True(t, ok)
	got, after, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile("../docs/run.md", []byte(before+begin+want+end+after), 0o666))
		return
	}
	require.Equal(t, want, got)
}

// leftToThem matches functions that need no device: texts, rates, conversions, fork support,
// registration of drivers, and the rsocket functions, because no rsocket can exist.
var leftToThem = regexp.MustCompile(
	`^(ibv_\w+_str|rdma_event_str|ibv_rate_to_\w+|(mbps|mult)_to_ibv_rate|ibv_copy_\w+|ibv_(dofork|dontfork)_range|` +
		`ibv_get_sysfs_path|ibv_read_sysfs_file|ibv_register_driver|r[a-z]+)$`)
