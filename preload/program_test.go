// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/runenv"
)

// dir holds the two libraries and the program of testdata, built by the first test that needs them.
var dir string

func TestMain(m *testing.M) {
	code := m.Run()
	if dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

var build = sync.OnceValue(func() (err error) {
	if dir, err = os.MkdirTemp("", "goverbs-preload-"); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // a test runs as another user
		return err
	}
	for _, command := range []*exec.Cmd{
		exec.Command("../scripts/preload.sh", dir),
		exec.Command("cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, "program"),
			"testdata/program.c",
			"testdata/requests.c", "testdata/attributes.c", "-libverbs", "-lrdmacm", "-lpthread"),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, out)
		}
	}
	return nil
})

// limit is the time after which a hanging program is killed.
const limit = 60 * time.Second

// program runs one of the programs of testdata/program.c with the libraries preloaded, and returns
// its exit status and stderr.
func program(t *testing.T, name string, env ...string) (int, string) {
	t.Helper()
	require.NoError(t, build())
	return preloaded(t, filepath.Join(dir, runenv.Shim), name, env...)
}

func preloaded(t *testing.T, shim, name string, env ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "program"), name)
	cmd.Env = append(os.Environ(), append(env, "LD_PRELOAD="+shim)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err := cmd.Run()
	require.NoError(t, ctx.Err(), "%s: %s", name, &stderr)
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode(), stderr.String()
	}
	require.NoError(t, err, "%s: %s", name, &stderr)
	return 0, stderr.String()
}

// TestPrograms runs C programs, each of which checks behavior that programs rely on.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"pair", "inline", "threads", "leak", "order", "port", "waiting", "signals", "faults",
		"fork-before", "exec-after", "exec-without", "memlock", "leaves", "refusals", "async", "unmap", "vanish",
		"vanish-messages", "late-faults", "unload", "memory", "many", "exit-reading", "fork-thread", "bound", "sends",
		"one-sided", "refused-keys", "fence", "bad-sends", "bad-receives", "signaled", "solicited", "windows", "shared",
		"depths", "sizes"} {
		t.Run(name, func(t *testing.T) {
			code, stderr := program(t, name)
			require.Zero(t, code, stderr)
			require.Empty(t, stderr)
		})
	}
}

// TestKeepReal combines a kernel device with the RNIC, using a shim whose libibverbs is
// testdata/real.c.
func TestKeepReal(t *testing.T) {
	require.NoError(t, build())
	beside := t.TempDir()
	library, shim := filepath.Join(beside, "libreal.so"), filepath.Join(beside, runenv.Shim)
	sources, err := filepath.Glob("shim/*.c")
	require.NoError(t, err)
	for _, args := range [][]string{
		{"-o", library, "testdata/real.c"},
		append([]string{"-fvisibility=hidden", "-DREAL_LIBRARY=\"" + library + "\"", "-o", shim}, sources...),
	} {
		out, err := exec.Command("cc",
			append([]string{"-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.Symlink(filepath.Join(dir, runenv.RNIC), filepath.Join(beside, runenv.RNIC)))
	code, stderr := preloaded(t, shim, "keep-real", "REAL_LIBRARY="+library, runenv.KeepReal+"=1")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	for _, no := range []string{"", "0"} {
		code, stderr = preloaded(t, shim, "refusals", runenv.KeepReal+"="+no) // which has a single device
		require.Zero(t, code, stderr)
	}
	require.NoError(t, os.Remove(library))
	code, stderr = preloaded(t, shim, "refusals", runenv.KeepReal+"=1")
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "goverbs run: "+library)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}

// TestForkAfter checks that the child prints the error once.
func TestForkAfter(t *testing.T) {
	code, stderr := program(t, "fork-after")
	require.Zero(t, code, stderr)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.Regexp(t, `^goverbs run: process \d+ was forked after its parent had used RDMA: it has no device\n$`,
		stderr)
}

// TestDevices runs the programs on every device that goverbs run offers, without atomics on
// usiw0-plain, which lacks them.
func TestDevices(t *testing.T) {
	for _, name := range []string{"pair", "inline", "vanish", "vanish-messages", "late-faults", "sends", "one-sided",
		"refused-keys", "fence", "bad-sends", "bad-receives", "signaled", "solicited", "depths", "sizes", "retries",
		"by-hand"} {
		code, stderr := program(t, name, runenv.Device+"=ib:usiw0")
		require.Zero(t, code, stderr)
	}
	code, stderr := program(t, "pair", runenv.Device+"=usiw0-plain")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "post:")
}

// TestVerbose checks that each unsupported feature is reported once.
func TestVerbose(t *testing.T) {
	code, stderr := program(t, "refusals", runenv.Verbose+"=1")
	require.Zero(t, code, stderr)
	for _, name := range []string{"ibv_alloc_dm", "ibv_create_cq_ex", "ibv_create_ah"} {
		require.Equal(t, 1, strings.Count(stderr, "goverbs run: "+name+": the device does not have it\n"), stderr)
	}
}

// TestEnvironment checks that an invalid value is reported and that there is no device.
func TestEnvironment(t *testing.T) {
	for _, wrong := range []string{runenv.Device + "=mlx5_0", runenv.Addr + "=localhost", runenv.MTU + "=x",
		runenv.MTU + "=1", runenv.CRC + "=maybe"} {
		code, stderr := program(t, "pair", wrong)
		require.Equal(t, 1, code)
		name, value, _ := strings.Cut(wrong, "=")
		require.Contains(t, stderr, value)
		if wrong != runenv.MTU+"=1" {
			require.Contains(t, stderr, name)
		}
	}
}

// TestPcap checks that the named process writes the file itself, and any other process one next to
// it.
func TestPcap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	code, stderr := program(t, "pair", runenv.Pcap+"="+file, runenv.PID+"=1")
	require.Zero(t, code, stderr)
	got, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	require.Len(t, got, 1)
	b, err := os.ReadFile(got[0])
	require.NoError(t, err)
	require.Contains(t, string(b), "MPA ID Req Frame")
	require.Contains(t, string(b), "a message")
	require.NoFileExists(t, file)
}

// TestTitle checks that options keep the values that they had when the program started.
func TestTitle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	code, stderr := program(t, "title", runenv.Device+"=ib:usiw0", "WANT_DEVICE=ib:usiw0", runenv.Pcap+"="+file)
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	got, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	require.Len(t, got, 1)
}

// TestAborted checks that the capture holds everything sent and received before a program exits,
// however it exits.
func TestAborted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pcapng")
	code, stderr := program(t, "aborts", runenv.Pcap+"="+file)
	require.Equal(t, -1, code, stderr) // killed by a signal
	got, err := filepath.Glob(file + ".*")
	require.NoError(t, err)
	require.Len(t, got, 1)
	b, err := os.ReadFile(got[0])
	require.NoError(t, err)
	for _, text := range []string{"MPA ID Req Frame", "MPA ID Rep Frame", "a message", "to be read"} {
		require.Contains(t, string(b), text)
	}
}

// TestFlushed checks that the reason of each failed request is printed, but flushed requests once
// per QP.
func TestFlushed(t *testing.T) {
	code, stderr := program(t, "flushes", runenv.Verbose+"=1")
	require.Zero(t, code, stderr)
	require.Equal(t, 2, strings.Count(stderr, "Work Request Flushed Error"), stderr)
	require.Equal(t, 1, strings.Count(stderr, `status="remote access error"`), stderr)
	code, stderr = program(t, "flushes")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
}

// TestOpens checks that a program that opens the libraries itself, or wants rsockets, gets a
// message, and that a library's dlopen finds the same files as without the preload.
func TestOpens(t *testing.T) {
	require.NoError(t, build())
	at := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(at, "sub"), 0o755))
	outer := filepath.Join(at, "libouter.so")
	for _, args := range [][]string{{"-DINNER", "-o", filepath.Join(at, "sub", "libinner.so")},
		{"-Wl,--enable-new-dtags,-rpath,$ORIGIN/sub", "-o", outer}} {
		out, err := exec.Command("cc",
			append([]string{"-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "testdata/inner.c"},
				args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	code, stderr := program(t, "opens", "OUTER="+outer)
	require.Zero(t, code, stderr)
	const real = ": the program gets the real library, which does not have the RNIC\n"
	require.Equal(t, "goverbs run: dlopen of libibverbs"+real+"goverbs run: dlopen of librdmacm"+real, stderr)
	const streams = "goverbs run: rsocket: the device does not have it; with librspreload the program goes on over TCP\n"
	code, stderr = program(t, "streams")
	require.Zero(t, code, stderr)
	require.Equal(t, streams, stderr)
	code, stderr = preloaded(t, filepath.Join(dir, runenv.Shim)+":"+library(t, "rsocket/librspreload.so.1"), "sockets")
	require.Zero(t, code, stderr)
	require.Equal(t, streams, stderr)
}

// TestMissing runs the shim without its library.
func TestMissing(t *testing.T) {
	require.NoError(t, build())
	alone := t.TempDir()
	shim, err := os.ReadFile(filepath.Join(dir, runenv.Shim))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(alone, runenv.Shim), shim, 0o755))
	cmd := exec.Command(filepath.Join(dir, "program"), "pair")
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(alone, runenv.Shim))
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "goverbs run: "+filepath.Join(alone, runenv.RNIC)+": cannot open")
}
