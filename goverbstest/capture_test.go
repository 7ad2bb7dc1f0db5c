// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/usiw"
)

// requireFiles requires a number of files in a directory and returns their names.
func requireFiles(t *testing.T, dir string, n int) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, names, n)
	return names
}

// payloads returns the packets of a file, as the test's own reader finds them, in one string.
func payloads(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	var all []byte
	for {
		b, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return string(all)
		}
		require.NoError(t, err)
		all = append(all, b...)
	}
}

// opcodes returns the RDMAP opcodes that tshark finds in a file.
func opcodes(t *testing.T, name string) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	require.NoError(t, err, "tshark, which judges the captures, is not installed; on Debian: apt-get install tshark")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, "-n", "-r", name, "-o", "tcp.try_heuristic_first:TRUE",
		"--disable-protocol", "smb_direct", "--disable-protocol", "rpcordma",
		"-Y", "iwarp_rdma", "-T", "fields", "-e", "iwarp_rdma.opcode")
	cmd.Env = append(os.Environ(), "WIRESHARK_CONFIG_DIR="+dir, "HOME="+dir, "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Join(strings.Fields(string(out)), " ")
}

// TestCapture: a failed test leaves a file with what was sent, and logs its name.
func TestCapture(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "captures")
	got := judge(t, func(tb testing.TB) {
		nw := goverbstest.New(tb, goverbstest.Options{CaptureDir: dir})
		exchange(tb, nw, "what a failed test has sent")
		tb.Errorf("wrong")
	})
	require.Equal(t, []string{"wrong"}, got.errors)
	name := requireFiles(t, dir, 1)[0]
	require.Equal(t, []string{"goverbstest: the connections of this test, for Wireshark or tshark: " + name}, got.logs)
	require.Regexp(t, `/Test_of_captures-\d+\.pcapng$`, name)
	require.Contains(t, payloads(t, name), "what a failed test has sent")
	require.Equal(t, "0x00 0x03", opcodes(t, name), "the Write that opens the connection, and the Send")
}

// TestNoCapture: a network without traffic, or without recording, leaves no file.
func TestNoCapture(t *testing.T) {
	dir := t.TempDir()
	fail := func(opts goverbstest.Options, f func(tb testing.TB, nw *goverbstest.Network)) {
		opts.CaptureDir = dir
		got := judge(t, func(tb testing.TB) {
			f(tb, goverbstest.New(tb, opts))
			tb.Errorf("wrong")
		})
		require.Equal(t, []string{"wrong"}, got.errors)
		require.Empty(t, got.logs)
		requireFiles(t, dir, 0)
	}
	fail(goverbstest.Options{}, func(testing.TB, *goverbstest.Network) {})
	fail(goverbstest.Options{NoCapture: true}, func(tb testing.TB, nw *goverbstest.Network) { exchange(tb, nw, "x") })
}

// TestCaptureFails: errors with the file are logged and have no other effect.
func TestCaptureFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	got := judge(t, func(tb testing.TB) {
		exchange(tb, goverbstest.New(tb, goverbstest.Options{CaptureDir: file}), "x")
		tb.Errorf("wrong")
	})
	require.Equal(t, []string{"wrong"}, got.errors)
	require.Len(t, got.logs, 1)
	require.Contains(t, got.logs[0], "goverbstest: the capture is not complete: mkdir "+file)

	got = judge(t, func(tb testing.TB) {
		nw := goverbstest.New(tb, goverbstest.Options{CaptureDir: file})
		require.NoError(tb, os.RemoveAll(tb.TempDir()))
		exchange(tb, nw, "x")
	})
	require.Empty(t, got.errors)
	require.Len(t, got.logs, 1)
	require.Contains(t, got.logs[0], "goverbstest: the capture is not complete: open ")
}

// countTap counts packets.
type countTap struct{ packets atomic.Int64 }

func (c *countTap) Packet(*usiw.Packet) { c.packets.Add(1) }

// TestOwnTap: the program's own tap also receives what is recorded.
func TestOwnTap(t *testing.T) {
	tap := new(countTap)
	exchange(t, goverbstest.New(t, goverbstest.Options{Config: usiw.Config{Tap: tap}}), "x")
	require.Positive(t, tap.packets.Load())
}

// childVariable is set in the process of a child of TestArtifacts.
const childVariable = "GOVERBSTEST_CHILD"

// TestFails is a failing test as a program might have it. TestArtifacts runs it.
func TestFails(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		return
	}
	t.Run("part", func(t *testing.T) {
		exchange(t, goverbstest.New(t, goverbstest.Options{}), "sent by a child")
		t.Error("wrong")
	})
}

// TestArtifacts: a failed test leaves its file in the directory for temporary files or, with
// -artifacts in a Go version that supports it, in the test's own.
func TestArtifacts(t *testing.T) {
	_, has := any(t).(interface{ ArtifactDir() string })
	for _, artifacts := range []bool{false, true} {
		if artifacts && !has {
			continue
		}
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFails$")
		if artifacts {
			cmd.Args = append(cmd.Args, "-test.artifacts", "-test.outputdir", dir)
		}
		tmp := t.TempDir()
		cmd.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+tmp)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.ExitCode(), "%s", out)
		found := regexp.MustCompile(`for Wireshark or tshark: (\S+)\n`).FindStringSubmatch(string(out))
		require.Len(t, found, 2, "%s", out)
		where := tmp
		if artifacts {
			where = dir
		}
		require.True(t, strings.HasPrefix(found[1], where+"/"), "%s is in %s", found[1], where)
		require.Contains(t, payloads(t, found[1]), "sent by a child")
	}
}
