// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRPingUsage(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no role", nil, []string{"-s", "-c"}},
		{"both roles", []string{"-s", "-c"}, []string{"-s and -c"}},
		{"both roles combined", []string{"-vsc", "-a", "::1"}, []string{"-s and -c"}},
		{"client without a server", []string{"-c"}, []string{"-a ADDR"}},
		{"argument", []string{"-s", "127.0.0.1"}, []string{`"127.0.0.1"`}},
		{"unknown letter", []string{"-s", "-t", "5"}, []string{"'t'"}},
		{"unknown option", []string{"-s", "--quick"}, []string{"--quick"}},
		{"QPs of its own", []string{"-s", "-q"}, []string{"-q: not supported"}},
		{"persistent client", []string{"-cP", "-a", "::1"}, []string{"-P"}},
		{"source of a server", []string{"-s", "-I", "127.0.0.1"}, []string{`-I "127.0.0.1"`}},
		{"no address", []string{"-s", "-a", ""}, []string{`-a ""`}},
		{"no source", []string{"-c", "-a", "::1", "-I", ""}, []string{`-I ""`}},
		{"address with port", []string{"-c", "-a", "127.0.0.1:7174"}, []string{`-a "127.0.0.1:7174"`, "-p"}},
		{"address in brackets", []string{"-c", "-a", "[::1]"}, []string{`-a "[::1]"`}},
		{"source with port", []string{"-c", "-a", "::1", "-I", "::1:x"}, []string{`-I "::1:x"`}},
		{"size too small", []string{"-s", "-S", "22"}, []string{"-S", `"22"`, "23 to 65536"}},
		{"size too large", []string{"-s", "-S65537"}, []string{"-S", `"65537"`, "23 to 65536"}},
		{"size is no number", []string{"-s", "-S", "64k"}, []string{"-S", `"64k"`, "not a number"}},
		{"negative count", []string{"-s", "-C", "-1"}, []string{"-C", `"-1"`, "0 to 2147483647"}},
		{"count too large", []string{"-s", "-C", "2147483648"}, []string{"-C", `"2147483648"`}},
		{"count far too large", []string{"-s", "-C", "99999999999999999999"},
			[]string{"-C", `"99999999999999999999"`, "0 to 2147483647"}},
		{"count is no number", []string{"-s", "-C", ""}, []string{"-C", `""`, "not a number"}},
		{"count missing", []string{"-s", "-C"}, []string{"'C'"}},
		{"port out of range", []string{"-s", "-p", "65536"}, []string{"-p", `"65536"`, "0 to 65535"}},
		{"port by name", []string{"-s", "-p", "rdma"}, []string{"-p", `"rdma"`}},
		{"port to connect to", []string{"-c", "-a", "::1", "-p", "0"}, []string{"-p 0"}},
		{"unknown device", []string{"-s", "--device", "mlx5_99"},
			[]string{"--device", `"mlx5_99"`, "present: ", "usiw0)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := execute(t, append([]string{"rping"}, c.args...)...)
			require.Equal(t, exitUsage, r.code, r.stderr)
			require.Empty(t, r.stdout)
			require.Len(t, lines(t, r.stderr), 1)
			require.True(t, strings.HasPrefix(r.stderr, "goverbs rping: "), r.stderr)
			for _, want := range c.want {
				require.Contains(t, r.stderr, want)
			}
		})
	}
	r := execute(t, "rping", "-h")
	require.Equal(t, exitDone, r.code)
	for _, want := range []string{"-s, --server", "-C, --count COUNT", "(default 7174)", "(default 64)",
		"--device NAME"} {
		require.Contains(t, r.stdout, want)
	}
}

// TestRPingCRCUsage: invalid values of --crc, and contradictory options.
func TestRPingCRCUsage(t *testing.T) {
	for _, c := range []struct {
		options []string
		says    string
	}{
		{[]string{"--crc", "maybe"}, `invalid argument "maybe" for "--crc" flag: not auto, on or off`},
		{[]string{"--crc", "on", "--no-crc"}, "--crc on and --no-crc"},
	} {
		r := execute(t, append([]string{"rping", "-c", "-a", "127.0.0.1"}, c.options...)...)
		require.Equal(t, exitUsage, r.code, "%v: %s", c.options, r.stderr)
		require.Contains(t, r.stderr, c.says)
	}
}
