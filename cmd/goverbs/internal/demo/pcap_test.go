// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// tshark runs tshark on a capture file with additional arguments.
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

// tshark's names for the messages of the demo, and the minimum number of each in one run. Both
// kinds of Immediate Data have no name, so their numbers are used.
var demoMessages = map[string]int{
	"Write (0x0)": 1024 + 2000, "Read Request (0x1)": 1024, "Read Response (0x2)": 1024, "Send (0x3)": 1500,
	"Send with Invalidate (0x4)": 8, "Send with SE (0x5)": 500, "Atomic Request (0xa)": 4000,
	"Atomic Response (0xb)": 4000,
	"Unknown (0x8)":         2000, "Unknown (0x9)": 500, "FetchAdd (0)": 2000, "CmpSwap (2)": 2000,
}

var opcodeLine = regexp.MustCompile(`(?m)^ *(?:[.01]+ )+= OpCode: (.*)$`)

// connections asserts that tshark decodes every packet of a file, and returns the number of
// connections.
func connections(t *testing.T, file string) int {
	t.Helper()
	// Requests, and what must not occur: another protocol, malformed packets, gaps in the streams.
	found := clitest.Lines(t,
		tshark(t, file, "-Y", "iwarp_mpa.req || tcp.len > 0 && !iwarp_mpa || _ws.malformed || tcp.analysis.flags", "-T",
			"fields", "-e", "frame.protocols", "-e", "_ws.malformed", "-e", "tcp.analysis.flags"))
	for _, line := range found {
		require.Equal(t, "raw:ip:tcp:iwarp_mpa\t\t", line)
	}
	return len(found)
}

// judge asserts that a file has the messages of a demo, with valid CRCs.
func judge(t *testing.T, file string) {
	t.Helper()
	text := tshark(t, file, "-O", "iwarp_mpa,iwarp_ddp_rdmap")
	require.NotContains(t, text, "(Bad CRC32")
	messages := make(map[string]int)
	all := 0
	for _, m := range opcodeLine.FindAllStringSubmatch(text, -1) {
		messages[m[1]]++
		if strings.Contains(m[1], "(0x") { // not the operation of an atomic, also an "opcode"
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

// The driving process records its conversation with the listening process.
func TestPcap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.pcapng")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("old"), 1000), 0o600))
	r := clitest.Run(t, "demo", "--json", "--pcap", file, "--clients", "2", "--ops", "20")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
	requireSteps(t, decodeResult(t, r.Stdout), "")
	require.Equal(t, 1, connections(t, file))
	judge(t, file)
}

// The listening process also records the client processes.
func TestPcapListener(t *testing.T) {
	file := filepath.Join(t.TempDir(), "listener.pcapng")
	l, address := listen(t, "--pcap", file)
	c := clitest.Run(t, "demo", "--connect", address, "--clients", "3", "--ops", "20")
	require.Equal(t, clitest.Done, c.Code, c.Stderr)
	r := l.End(t)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Equal(t, 1+3, connections(t, file))
}

// A recording ends at its limit, and the demo continues and says so. The file has whole packets,
// truncated to the chosen length.
func TestPcapLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.pcapng")
	r := clitest.Run(t, "demo", "--json", "--pcap", file, "--pcap-limit", "64K", "--pcap-snaplen", "128", "--clients",
		"1", "--ops", "20")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Equal(t, "--pcap "+file+": the file has reached its limit of 65,536 bytes; what came later is not in it\n",
		r.Stderr)
	requireSteps(t, decodeResult(t, r.Stdout), "")
	fi, err := os.Stat(file)
	require.NoError(t, err)
	require.LessOrEqual(t, fi.Size(), int64(64<<10))
	require.Greater(t, fi.Size(), int64(64<<10-200), "a packet takes less than that")
	stored, cut := 0, 0
	for _, line := range clitest.Lines(t, tshark(t, file, "-T", "fields", "-e", "frame.cap_len", "-e", "frame.len")) {
		var captured, length int
		_, err := fmt.Sscan(line, &captured, &length)
		require.NoError(t, err)
		require.Equal(t, min(length, 128), captured)
		stored++
		if captured < length {
			cut++
		}
	}
	require.Greater(t, stored, 100)
	require.NotZero(t, cut)

	// A recording below its limit causes no remark.
	r = clitest.Run(t, "demo", "--json", "--pcap", file, "--pcap-limit", "1G", "--clients", "1", "--ops", "20")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	require.Empty(t, r.Stderr)
}

func TestPcapErrors(t *testing.T) {
	dir := t.TempDir()
	for name, file := range map[string]string{"no such directory": filepath.Join(dir, "none", "x.pcapng"),
		"a directory": dir} {
		t.Run(name, func(t *testing.T) {
			r := clitest.Run(t, "demo", "--json", "--pcap", file)
			require.Equal(t, clitest.Failed, r.Code)
			require.Contains(t, r.Stderr, "goverbs demo: --pcap "+file+": open "+file+": ")
			require.Len(t, clitest.Lines(t, r.Stderr), 1)
			for _, s := range decodeResult(t, r.Stdout).Steps {
				require.False(t, s.OK, s.Name)
			}
		})
	}
	clitest.NothingRuns(t)
}
