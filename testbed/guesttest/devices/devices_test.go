// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// transport is the node_type (enum rdma_node_type of the kernel) and the link_layer of the port, as
// in sysfs.
type transport struct{ node, link string }

var (
	iwarp = transport{"4: RNIC", "Ethernet"}
	roce  = transport{"1: CA", "Ethernet"}
)

// attribute reads a file below /sys/class/infiniband.
func attribute(t *testing.T, name ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"/sys/class/infiniband"}, name...)...))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// requireDevice checks one device: its transport, an active port, and the file with which
// libibverbs opens it.
func requireDevice(t *testing.T, name string, want transport) {
	t.Helper()
	rdmatest.KernelDevice(t, name)
	require.Equal(t, want, transport{attribute(t, name, "node_type"), attribute(t, name, "ports/1/link_layer")}, name)
	require.Equal(t, "4: ACTIVE", attribute(t, name, "ports/1/state"), name)
	info, err := os.Stat(filepath.Join("/dev/infiniband", uverbs(t, name)))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeCharDevice, name)
}

// uverbs returns the name of the character device of an RDMA device.
func uverbs(t *testing.T, device string) string {
	t.Helper()
	files, err := filepath.Glob("/sys/class/infiniband_verbs/uverbs*/ibdev")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.TrimSpace(string(text)) == device {
			return filepath.Base(filepath.Dir(file))
		}
	}
	require.Fail(t, "no uverbs of "+device)
	return ""
}

// requireAddresses checks that an interface has the addresses, possibly among others.
func requireAddresses(t *testing.T, name string, want ...string) {
	t.Helper()
	i, err := net.InterfaceByName(name)
	require.NoError(t, err)
	addrs, err := i.Addrs()
	require.NoError(t, err)
	var have []netip.Prefix
	for _, a := range addrs {
		have = append(have, netip.MustParsePrefix(a.String()))
	}
	for _, w := range want {
		require.Contains(t, have, netip.MustParsePrefix(w), name)
	}
}

func TestOneHost(t *testing.T) {
	requireDevice(t, "rxe0", roce)
	requireDevice(t, "siw0", iwarp)
	requireAddresses(t, "e0", "10.78.0.1/24", "fd00:78::1/64")
	requireAddresses(t, "d0", "10.77.0.1/24", "fd00:77::1/64")
	require.Equal(t, "e0", attribute(t, "rxe0/ports/1/gid_attrs/ndevs/1"))
	require.Equal(t, "RoCE v2", attribute(t, "rxe0/ports/1/gid_attrs/types/1"))
	// The mapped 10.78.0.1.
	require.Equal(t, "0000:0000:0000:0000:0000:ffff:0a4e:0001", attribute(t, "rxe0/ports/1/gids/1"))
}

func TestTwoHosts(t *testing.T) {
	for _, host := range []string{"1", "2"} {
		requireDevice(t, "rxe"+host, roce)
		requireDevice(t, "siw"+host, iwarp)
		requireAddresses(t, "e"+host, "10.78.0."+host+"/32")
	}
}
