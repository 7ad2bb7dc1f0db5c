// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
)

func TestCheckAddress(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", ":7306", "[::1]:65535", "host:1"} {
		require.Empty(t, checkAddress(address, true), address)
	}
	for _, address := range []string{"", "host", "host:", "host:1:2", "::1", ":65536", ":-1", ":1x"} {
		require.NotEmpty(t, checkAddress(address, true), address)
	}
	require.NotEmpty(t, checkAddress(":1", false))
	require.NotEmpty(t, checkAddress("host:0", false))
	require.Empty(t, checkAddress("host:65535", false))
}

// Wrong usage leaves an existing file untouched.
func TestPcapUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "precious.pcapng")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	r := execute(t, "demo", "--pcap", file, "--clients", "0")
	require.Equal(t, exitUsage, r.code)
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "precious", string(b))

	r = execute(t, "demo", "--pcap", "")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `goverbs demo: --pcap "": no file`)
	require.Contains(t, execute(t, "demo", "--help").stdout, "--pcap FILE")
}

// Only the process's own RNIC can be recorded, and here the device is another one.
func TestPcapOtherDevice(t *testing.T) {
	other, err := usiw.Register(usiw.Config{Name: "other0"})
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	file := filepath.Join(t.TempDir(), "x.pcapng")
	r := execute(t, "demo", "--device", "other0", "--pcap", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "goverbs demo: --pcap "+file+": only the user-space RNIC of this process, usiw0, "+
		"can be recorded, not --device other0")
}

// TestRecordingNotBegun: a rejected command line leaves the file untouched.
func TestRecordingNotBegun(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
	for _, device := range []string{"auto", "mlx5_99"} {
		require.Equal(t, exitUsage, execute(t, "demo", "--device", device, "--pcap", name).code)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "old", string(got), device)
	}
}
