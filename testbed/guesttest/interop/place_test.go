// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The kernel's device, its interface, and the other end of that cable.
const (
	kernelDevice = "siw0"
	kernelHost   = "10.77.0.1"
	kernelCable  = "d0"
	userHost     = "10.77.0.2"
	userCable    = "d1"
	// userSpace is the network namespace into which userCable is moved.
	userSpace = "interop"
)

// place is the location of the user-space RNIC relative to the kernel's siw.
type place struct {
	name    string
	host    string       // the address of the user-space RNIC
	network usiw.Network // creates its sockets (nil = in the namespace of this process)
	under   []string     // the prefix of a command that runs there
	capture string       // the interface that sees the packets
}

// here is the kernel's own host: TCP uses the loopback interface, whose segments are 64 KiB.
var here = place{name: "loopback", host: kernelHost, capture: "lo"}

// needKernel is the first line of every test that needs the kernel's siw.
func needKernel(t *testing.T) {
	t.Helper()
	rdmatest.KernelDevice(t, kernelDevice)
}

// cable returns the place at the other end of the kernel's cable, in a separate network namespace.
// Segments are 1448 bytes. When the test ends, the end of the cable is moved back.
func cable(t *testing.T) place {
	t.Helper()
	command(t, "ip", "netns", "add", userSpace)
	t.Cleanup(func() { assert.NoError(t, try("ip", "netns", "del", userSpace)) })
	command(t, "ip", "link", "set", userCable, "netns", userSpace)
	t.Cleanup(func() {
		assert.NoError(t, try("ip", "-n", userSpace, "link", "set", userCable, "netns", "1"))
		assert.NoError(t, try("ip", "link", "set", userCable, "up"))
	})
	command(t, "ip", "-n", userSpace, "link", "set", "lo", "up")
	command(t, "ip", "-n", userSpace, "addr", "add", userHost+"/24", "dev", userCable)
	command(t, "ip", "-n", userSpace, "link", "set", userCable, "up")
	network, err := newNamespace(userSpace)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, network.Close()) })
	return place{name: "cable", host: userHost, network: network, under: []string{"ip", "netns", "exec", userSpace},
		capture: kernelCable}
}

// everywhere runs f in both places.
func everywhere(t *testing.T, f func(t *testing.T, p place)) {
	t.Run(here.name, func(t *testing.T) { f(t, here) })
	t.Run("cable", func(t *testing.T) { f(t, cable(t)) })
}

// nic creates a user-space RNIC at the place.
func (p place) nic(t *testing.T, cfg usiw.Config) *verbs.Device {
	t.Helper()
	cfg.Network = p.network
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, nic.Close()) })
	return nic.Device()
}

// anyPort returns the address of a host with any port.
func anyPort(host string) string { return net.JoinHostPort(host, "0") }

// try runs a command.
func try(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// command runs a command, which must succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	require.NoError(t, try(name, args...))
}
