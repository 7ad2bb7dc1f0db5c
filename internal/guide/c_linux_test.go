// SPDX-License-Identifier: BSD-3-Clause

package guide

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the machine has of rdma-core. The tests need it as the tests of the binary interface do.
const headers = "/usr/include"

// libraries are the files of the libraries, by the versions that the guide describes (rdma-core
// 44).
var libraries = map[string]string{"libibverbs.so.1": "libibverbs.so.1.14.", "librdmacm.so.1": "librdmacm.so.1.3."}

// directories are those in which a library may be.
var directories = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}

var (
	// call is a function of the C libraries in backquotes.
	call = regexp.MustCompile("`((?:ibv|rdma)_[a-z0-9_]+|r[a-z]+)`")
	// inline is the definition of a function in a header.
	inline = regexp.MustCompile(`(?m)^static inline\s[^;{}()]*?\b((?:ibv|rdma)_[a-z0-9_]+)\s*\(`)
	// declared is a function that a header declares, or something else before a parenthesis.
	declared = regexp.MustCompile(`\b((?:ibv|rdma|r)[a-z0-9_]*)\s*\(`)
)

// functions returns the functions of the libraries, and whether the versions are those that the
// guide describes.
func functions(t *testing.T) (all map[string]bool, current bool) {
	t.Helper()
	exported := make(map[string]bool)
	current = true
	for name, version := range libraries {
		i := slices.IndexFunc(directories,
			func(dir string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil })
		require.GreaterOrEqual(t, i, 0,
			"%s is not installed; on Debian, as root: apt-get install libibverbs-dev librdmacm-dev", name)
		file, err := filepath.EvalSymlinks(filepath.Join(directories[i], name))
		require.NoError(t, err)
		current = current && strings.HasPrefix(filepath.Base(file), version)
		lib, err := elf.Open(file)
		require.NoError(t, err)
		defer lib.Close()
		symbols, err := lib.DynamicSymbols()
		require.NoError(t, err)
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				exported[s.Name] = true
			}
		}
	}
	all = make(map[string]bool)
	for _, h := range []string{"infiniband/verbs.h", "infiniband/sa.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h",
		"rdma/rsocket.h"} {
		text, err := os.ReadFile(filepath.Join(headers, h))
		require.NoError(t, err)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			if name := string(m[1]); exported[name] {
				all[name] = true
			}
		}
		for _, m := range inline.FindAllSubmatch(text, -1) {
			all[string(m[1])] = true
		}
	}
	return all, current
}

// Every function of libibverbs and librdmacm is in the guide: what it is in Go, or that it is not
// there. The guide names no other.
func TestCFunctions(t *testing.T) {
	all, current := functions(t)
	if !current {
		t.Log("the libraries are not those of rdma-core 44: only what both have is compared")
	}
	require.Greater(t, len(all), 200)
	_, table, found := strings.Cut(read(t, path), "\n## From C to Go\n")
	require.True(t, found)
	named := make(map[string]bool)
	for line := range strings.Lines(strings.ReplaceAll(table, "\n  ", " ")) { // items in one line
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		if !strings.HasPrefix(line, "| `") && !strings.HasPrefix(line, "- `") {
			continue
		}
		for _, m := range call.FindAllStringSubmatch(cell, -1) {
			require.False(t, named[m[1]], "%s is there twice", m[1])
			named[m[1]] = true
			if current {
				require.True(t, all[m[1]], "%s is no function of the libraries", m[1])
			}
		}
	}
	var missing []string
	for name := range all {
		if !named[name] && current {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing)
}
