// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/siw"
)

// tshark reads a capture file with the given further arguments.
func tshark(t *testing.T, file string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("tshark")
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("tshark, which judges the captures, is not installed; on Debian, as root: " +
			"DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends tshark")
	}
	require.NoError(t, err)
	cmd := exec.Command(path, append([]string{"-n", "-r", file, "-o", "tcp.try_heuristic_first:TRUE",
		"--disable-protocol", "smb_direct", "--disable-protocol", "rpcordma"}, args...)...)
	cmd.Env = append(os.Environ(), "WIRESHARK_CONFIG_DIR="+t.TempDir(), "LC_ALL=C.UTF-8")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "tshark: %s", &stderr)
	return string(out)
}

// The names that tshark has for the messages of the demo, with how many there are at least in one run; both kinds of
// Immediate Data, which have no names, go by their numbers.
var demoMessages = map[string]int{
	"Write (0x0)": 1024 + 2000, "Read Request (0x1)": 1024, "Read Response (0x2)": 1024, "Send (0x3)": 1500,
	"Send with Invalidate (0x4)": 8, "Send with SE (0x5)": 500, "Atomic Request (0xa)": 4000, "Atomic Response (0xb)": 4000,
	"Unknown (0x8)": 2000, "Unknown (0x9)": 500, "FetchAdd (0)": 2000, "CmpSwap (2)": 2000,
}

var opcodeLine = regexp.MustCompile(`(?m)^ *(?:[.01]+ )+= OpCode: (.*)$`)

// connections requires that tshark understands every packet of a file, and returns how many connections there are.
func connections(t *testing.T, file string) int {
	t.Helper()
	// Requests, and what must not be there: another protocol, malformed packets, gaps in the streams.
	found := lines(t, tshark(t, file, "-Y", "iwarp_mpa.req || tcp.len > 0 && !iwarp_mpa || _ws.malformed || tcp.analysis.flags",
		"-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed", "-e", "tcp.analysis.flags"))
	for _, line := range found {
		require.Equal(t, "raw:ip:tcp:iwarp_mpa\t\t", line)
	}
	return len(found)
}

// judge requires that the messages of a demo are in a file, with good CRCs.
func judge(t *testing.T, file string) {
	t.Helper()
	text := tshark(t, file, "-O", "iwarp_mpa,iwarp_ddp_rdmap")
	require.NotContains(t, text, "(Bad CRC32")
	messages := make(map[string]int)
	all := 0
	for _, m := range opcodeLine.FindAllStringSubmatch(text, -1) {
		messages[m[1]]++
		if strings.Contains(m[1], "(0x") { // not the operation of an atomic, which is called its opcode too
			all++
		}
	}
	require.Equal(t, all, strings.Count(text, "(Good CRC32)"))
	for name, n := range demoMessages {
		require.GreaterOrEqual(t, messages[name], n, "%s; there are %v", name, messages)
	}
	require.Equal(t, messages["Atomic Request (0xa)"], messages["Atomic Response (0xb)"])
	require.Zero(t, messages["Terminate (0x7)"])
}

// The driving process records its conversation with the listening one.
func TestPcap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.pcapng")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("old"), 1000), 0o600))
	r := goverbs(t, "demo", "--json", "--pcap", file, "--clients", "2", "--ops", "20")
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	requireSteps(t, decodeResult(t, r.stdout), "")
	require.Equal(t, 1, connections(t, file))
	judge(t, file)
}

// The listening process records the client processes too.
func TestPcapListener(t *testing.T) {
	file := filepath.Join(t.TempDir(), "listener.pcapng")
	l, address := listen(t, "--pcap", file)
	c := goverbs(t, "demo", "--connect", address, "--clients", "3", "--ops", "20")
	require.Equal(t, exitDone, c.code, c.stderr)
	r := l.end(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Equal(t, 1+3, connections(t, file))
}

func TestPcapErrors(t *testing.T) {
	dir := t.TempDir()
	for name, file := range map[string]string{"no such directory": filepath.Join(dir, "none", "x.pcapng"), "a directory": dir} {
		t.Run(name, func(t *testing.T) {
			r := goverbs(t, "demo", "--json", "--pcap", file)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.stderr, "goverbs demo: --pcap "+file+": open "+file+": ")
			require.Len(t, lines(t, r.stderr), 1)
			for _, s := range decodeResult(t, r.stdout).Steps {
				require.False(t, s.OK, s.Name)
			}
		})
	}
	nothingRuns(t)
}

// Wrong usage does not touch a file that is there.
func TestPcapUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "precious.pcapng")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	r := goverbs(t, "demo", "--pcap", file, "--clients", "0")
	require.Equal(t, exitUsage, r.code)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))

	r = goverbs(t, "demo", "--pcap", "")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `goverbs demo: --pcap "": no file`)
	require.Contains(t, goverbs(t, "demo", "--help").stdout, "--pcap FILE")
}

// Only the process's own RNIC can be recorded: here the device is another one.
func TestPcapOtherDevice(t *testing.T) {
	other, err := siw.Register(siw.Config{Name: "other0"})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	file := filepath.Join(t.TempDir(), "x.pcapng")
	var stdout, stderr bytes.Buffer
	code := run(context.Background(), []string{"demo", "--device", "other0", "--pcap", file}, strings.NewReader(""), &stdout, &stderr)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr.String(), "goverbs demo: --pcap "+file+": only the user-space RNIC of this process, usiw0, "+
		"can be recorded, not --device other0")
}

// TestRecordingNotBegun: a command line that is refused leaves the file as it was.
func TestRecordingNotBegun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
	for _, device := range []string{"auto", "mlx5_99"} {
		require.Equal(t, exitUsage, goverbs(t, "demo", "--device", device, "--pcap", name).code)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "old", string(got), device)
	}
}
