// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is the result of a command line.
type outcome struct {
	stdout, stderr string
	code           int
}

// execute executes a command line in this process.
func execute(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), args, strings.NewReader(""), &stdout, &stderr)
	return outcome{stdout.String(), stderr.String(), code}
}

// lines splits text that ends in a newline.
func lines(t *testing.T, s string) []string {
	t.Helper()
	require.True(t, strings.HasSuffix(s, "\n"), "%q", s)
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string // what the line must name
	}{
		{"no command", nil, []string{"no command"}},
		{"unknown command", []string{"demos"}, []string{`"demos" (did you mean demo?)`, "demo, devices"}},
		{"beginning of a command", []string{"dev"}, []string{`"dev" (did you mean devices?)`}},
		{"help of an unknown command", []string{"help", "demos"},
			[]string{`"demos" (did you mean demo?)`, "demo, devices"}},
		{"unknown option", []string{"demo", "--quick"}, []string{"goverbs demo:", "--quick ("}},
		{"option with a typing error", []string{"demo", "--lsiten", ":1"},
			[]string{"--lsiten (did you mean --listen?)"}},
		{"option with one hyphen", []string{"rping", "-device", "usiw0"}, []string{"(did you mean --device?)"}},
		{"hidden option", []string{"demo", "--client", "0"}, []string{"--client ("}},
		{"unknown shell", []string{"completion", "bsh"}, []string{"goverbs completion:", `"bsh" (did you mean bash?)`}},
		{"no shell", []string{"completion"}, []string{"bash, zsh, fish"}},
		{"two shells", []string{"completion", "bash", "zsh"}, []string{`"zsh"`}},
		{"unknown letter", []string{"devices", "-x"}, []string{"goverbs devices:", "-x"}},
		{"argument", []string{"devices", "usiw0"}, []string{"goverbs devices:", `"usiw0"`}},
		{"value missing", []string{"demo", "--listen"}, []string{"--listen"}},
		{"not a number", []string{"demo", "--ops", "many"}, []string{"--ops", `"many"`}},
		{"no operations", []string{"demo", "--ops", "0"}, []string{"--ops 0", "1 to 1000000"}},
		{"no clients", []string{"demo", "--clients", "0"}, []string{"--clients 0", "1 to 64"}},
		{"too many clients", []string{"demo", "--clients", "65"}, []string{"--clients 65"}},
		{"both halves", []string{"demo", "--listen", ":1", "--connect", "h:1"},
			[]string{"--listen :1", "--connect h:1"}},
		{"address without port", []string{"demo", "--listen", "127.0.0.1"},
			[]string{"--listen", `"127.0.0.1"`, "host:port"}},
		{"empty address", []string{"demo", "--connect", ""}, []string{"--connect", `""`}},
		{"port out of range", []string{"demo", "--listen", "127.0.0.1:65536"},
			[]string{"--listen", "65536", "0 to 65535"}},
		{"port far out of range", []string{"demo", "--listen", ":99999999999999999999"},
			[]string{"--listen", "99999999999999999999"}},
		{"port to connect to out of range", []string{"demo", "--connect", "h:0"},
			[]string{"--connect", "port 0", "1 to 65535"}},
		{"negative port", []string{"demo", "--connect", "h:-1"}, []string{"--connect", `"-1"`}},
		{"port by name", []string{"demo", "--connect", "h:rdma"}, []string{"--connect", `"rdma"`}},
		{"no host to connect to", []string{"demo", "--connect", ":7306"}, []string{"--connect", `":7306"`, "no host"}},
		{"unknown device", []string{"demo", "--device", "mlx5_99"},
			[]string{"--device", `"mlx5_99"`, "present: ", "usiw0) (goverbs"}},
		{"device with a typing error", []string{"demo", "--device", "uisw0"},
			[]string{`"uisw0"`, "usiw0) (did you mean usiw0?)"}},
		{"empty device", []string{"demo", "--device", ""}, []string{"--device", `""`, "present: ", "usiw0)"}},
		{"device that cannot be recorded", []string{"demo", "--device", "auto", "--pcap", "x"},
			[]string{"--pcap x", "usiw0", "--device auto"}},
		{"unknown device to list", []string{"devices", "--device", "mlx5_99"},
			[]string{"goverbs devices:", `"mlx5_99"`, "present: ", "usiw0)"}},
		{"no address for a list", []string{"devices", "--device", "auto"},
			[]string{"goverbs devices:", "--device auto", "no address"}},
		{"limit of no recording", []string{"demo", "--pcap-limit", "1M"},
			[]string{"--pcap-limit 1048576", "without --pcap"}},
		{"snap length of no recording", []string{"demo", "--pcap-snaplen", "100"},
			[]string{"--pcap-snaplen 100", "without --pcap"}},
		{"snap length too small", []string{"demo", "--pcap", "x", "--pcap-snaplen", "67"},
			[]string{"--pcap-snaplen 67", "68 to"}},
		{"snap length too large", []string{"demo", "--pcap", "x", "--pcap-snaplen", "2G"},
			[]string{"--pcap-snaplen 2147483648"}},
		{"limit too small", []string{"demo", "--pcap", "x", "--pcap-limit", "4095"},
			[]string{"--pcap-limit 4095", "4096"}},
		{"limit too large", []string{"demo", "--pcap", "x", "--pcap-limit", "8589934592G"},
			[]string{"--pcap-limit", "too large"}},
		{"limit is no number", []string{"demo", "--pcap", "x", "--pcap-limit", "1KB"},
			[]string{"--pcap-limit", `"1KB"`, "not a number"}},
		{"limit is negative", []string{"demo", "--pcap", "x", "--pcap-limit", "-1"},
			[]string{"--pcap-limit", `"-1"`, "not a number"}},
		{"no program", []string{"run"}, []string{"goverbs run:", "no program"}},
		{"no program after options", []string{"run", "--mtu", "1500", "--"}, []string{"no program"}},
		{"device of the kernel for a program", []string{"run", "--device", "rxe0", "--", "true"},
			[]string{"--device", `"rxe0"`, "usiw0-plain"}},
		{"address of a name", []string{"run", "--addr", "localhost", "--", "true"},
			[]string{"--addr", `"localhost"`, "not an IP address"}},
		{"small FPDUs", []string{"run", "--mtu", "155", "--", "true"}, []string{"--mtu", `"155"`, "156 to 65536"}},
		{"unknown policy", []string{"run", "--crc", "maybe", "--", "true"},
			[]string{"--crc", `"maybe"`, "auto, on or off"}},
		{"no file for a program's recording", []string{"run", "--pcap", "", "--", "true"},
			[]string{"--pcap", "no file"}},
		{"unknown step", []string{"demo", "--break", "dance"},
			[]string{"--break", `"dance"`, "connect, send, write, read"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := execute(t, c.args...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Empty(t, r.stdout)
			require.Len(t, lines(t, r.stderr), 1)
			for _, want := range c.want {
				require.Contains(t, r.stderr, want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{
		{"--help"}, {"-h"}, {"help"}, {"demo", "--help"}, {"help", "demo"}, {"devices", "-h"}, {"version", "-h"},
		{"completion", "-h"}, {"demo", "--listen", ":1", "--help"},
	} {
		r := execute(t, args...)
		require.Equal(t, exitDone, r.code, "%q: %s", args, r.stderr)
		require.Empty(t, r.stderr)
		require.Contains(t, r.stdout, "Usage:")
		require.NotContains(t, r.stdout, "--break", "it is hidden")
		require.NotContains(t, r.stdout, "demo-client", "it is hidden")
	}
	require.Contains(t, execute(t, "demo", "--help").stdout, "--connect ADDR")
	require.Contains(t, execute(t, "--help").stdout, "devices")
}

// TestVersionOption: --version is the same as the command version.
func TestVersionOption(t *testing.T) {
	option, command := execute(t, "--version"), execute(t, "version")
	require.Equal(t, command, option)
	require.Zero(t, option.code)
	require.Contains(t, option.stdout, "github.com/goverbs/goverbs")
}

// TestOnly: an unknown scenario is reported with the known ones.
func TestOnly(t *testing.T) {
	r := execute(t, "fabrics", "--only", "row05/send-imm,rowzz")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `--only "rowzz": no scenario`)
	require.Contains(t, r.stderr, "row06/cmp-swap")
}
