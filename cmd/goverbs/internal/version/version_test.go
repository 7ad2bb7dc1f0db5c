// SPDX-License-Identifier: BSD-3-Clause

package version

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

func TestMain(m *testing.M) { os.Exit(clitest.Main(m)) }

func TestVersion(t *testing.T) {
	text := clitest.Run(t, "version")
	require.Equal(t, clitest.Done, text.Code, text.Stderr)
	require.Regexp(t, `(?m)^module +github.com/goverbs/goverbs `, text.Stdout)
	require.Contains(t, text.Stdout, runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)

	r := clitest.Run(t, "version", "--json")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	var got Report
	dec := json.NewDecoder(strings.NewReader(r.Stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&got))
	require.Equal(t, "github.com/goverbs/goverbs", got.Module)
	require.Equal(t, runtime.Version(), got.Go)
	if !clitest.WithLibibverbs {
		require.Regexp(t, `(?m)^rdma-core +not found$`, text.Stdout)
		require.NotEmpty(t, got.Libibverbs.Error)
		require.NotEmpty(t, got.Librdmacm.Error)
		require.Empty(t, got.RDMACore)
		return
	}
	for _, l := range []library{got.Libibverbs, got.Librdmacm} {
		require.Empty(t, l.Error)
		require.FileExists(t, l.File)
		require.Contains(t, text.Stdout, l.File)
	}
	require.Regexp(t, `^\d+\.\d+`, got.RDMACore)
	require.Regexp(t, `(?m)^rdma-core +`+got.RDMACore+`$`, text.Stdout)
}

func printed(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Print(&b))
	return b.String()
}

func TestRevision(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Path: "example.net/x", Version: "v1.2.3"}}
	require.Contains(t, printed(t, program(info)), "revision    not recorded by the build\n")
	info.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "false"}}
	require.Contains(t, printed(t, program(info)),
		"module      example.net/x v1.2.3\nrevision    abc of 2026-01-02T03:04:05Z\n")
	info.Settings[2].Value = "true"
	require.Contains(t, printed(t, program(info)), "abc of 2026-01-02T03:04:05Z, modified\n")
}

func TestLibraries(t *testing.T) {
	r := &Report{Libibverbs: library{File: "/lib/libibverbs.so.1"},
		Librdmacm: opened("librdmacm.so.", errors.New("is too old"))}
	text := printed(t, r)
	require.Contains(t, text, "rdma-core   found\n", "its version is not known")
	require.Contains(t, text, "librdmacm   is too old\n")

	maps := "7f00-7f01 r--p 0 08:01 7 /usr/lib/not-libibverbs.so.1\n7f00-7f01 r--p 0 00:00 0\n" +
		"7f01-7f02 r-xp 0 08:01 9 /opt/my libs/libibverbs.so.1.14.44.0\n"
	require.Equal(t, "/opt/my libs/libibverbs.so.1.14.44.0", mapped(strings.NewReader(maps), "libibverbs.so."))
	require.Empty(t, mapped(strings.NewReader(maps), "librdmacm.so."))

	for name, want := range map[string]string{"libibverbs.so.1.14.44.0": "44.0", "libibverbs.so.1.15.61.0-2": "61.0-2",
		"libibverbs.so.1": "", "libibverbs.so": "", "": ""} {
		require.Equal(t, want, packageVersion(name), name)
	}
}
