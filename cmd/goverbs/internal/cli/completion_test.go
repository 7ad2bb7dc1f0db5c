// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// roceDevice is a device that can be wrapped.
type roceDevice struct{ verbs.ProviderDevice }

func (roceDevice) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: "roce9", Provider: "test", Transport: verbs.TransportIB}
}

// completions asks as the scripts do, and returns what is offered for the last word, without
// descriptions.
func completions(t *testing.T, words ...string) (offered []string, directive string) {
	t.Helper()
	r := execute(t, append([]string{"__complete"}, words...)...)
	require.Equal(t, exitDone, r.code, r.stderr)
	all := lines(t, r.stdout)
	for _, line := range all[:len(all)-1] {
		word, _, _ := strings.Cut(line, "\t")
		offered = append(offered, word)
	}
	return offered, all[len(all)-1]
}

func TestCompletion(t *testing.T) {
	roce, err := verbs.Register(roceDevice{})
	require.NoError(t, err)
	defer verbs.Unregister(roce)
	const (
		words = ":4" // nothing but what is offered
		files = ":0"
	)
	for _, c := range []struct {
		line      string
		has       []string
		hasNot    []string
		directive string
	}{
		{"|", []string{"demo", "devices", "rping", "version", "completion", "help"}, []string{"demo-client"}, words},
		{"de|", []string{"demo", "devices"}, []string{"rping", "demo-client"}, words},
		{"help d|", []string{"demo", "devices"}, nil, words},
		{"completion |", []string{"bash", "zsh", "fish"}, []string{"powershell"}, words},
		{"completion zsh |", nil, []string{"bash"}, words},
		{"demo |", nil, []string{"usiw0"}, words},
		{"demo --d|", []string{"--device"}, nil, words},
		{"demo --|", []string{"--listen", "--json", "--pcap"}, []string{"--break", "--child"}, words},
		{"demo --device |", []string{"usiw0", "usiw0-plain", "auto"}, []string{"demo", "ib:auto"}, words},
		{"devices --device |", []string{"usiw0", "usiw0-plain", "ib:roce9"}, []string{"auto"}, words},
		{"rping --device |", []string{"usiw0", "auto"}, nil, words},
		{"rping -c --crc |", []string{"auto", "on", "off"}, nil, words},
		{"rping -c -a |", nil, []string{"usiw0"}, words},
		{"run --device |", []string{"usiw0", "usiw0-plain", "ib:usiw0"}, []string{"auto"}, words},
		{"run --crc |", []string{"auto", "on", "off"}, nil, words},
		{"run |", nil, []string{"usiw0"}, files},
		{"demo --pcap |", nil, []string{"usiw0"}, files},
	} {
		line := strings.Split(strings.TrimSuffix(c.line, "|"), " ")
		got, directive := completions(t, line...)
		require.Subset(t, got, c.has, c.line)
		for _, no := range c.hasNot {
			require.NotContains(t, got, no, c.line)
		}
		require.Equal(t, c.directive, directive, c.line)
	}
	require.Contains(t, execute(t, "__complete", "demo", "--device", "usiw").stdout, "usiw0\tusiw, iWARP\n")
}

// TestCompletionScripts: each shell has a script of its own, which begins as the shell wants it.
func TestCompletionScripts(t *testing.T) {
	for shell, begin := range map[string]string{"bash": "# bash completion V2 for goverbs ",
		"zsh": "#compdef goverbs\n", "fish": "# fish completion for goverbs "} {
		r := execute(t, "completion", shell)
		require.Equal(t, exitDone, r.code)
		require.Empty(t, r.stderr)
		require.True(t, strings.HasPrefix(r.stdout, begin), "%s: %.60q", shell, r.stdout)
	}
}
