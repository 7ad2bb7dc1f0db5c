// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/verbs"
)

// The interface, the device and the module are removed in the middle of traffic in both directions.

// TestModuleLinkDown: siw of 6.1 ends the connections of an interface that goes down; siw of 6.12
// keeps them, and traffic resumes when the interface is up again. Both sides see the end and all of
// their completions, and afterwards connections work as before.
func TestModuleLinkDown(t *testing.T) {
	needModule(t)
	unharmed(t)
	p := cable(t)
	// keeps the addresses for the following tests
	keep := "/proc/sys/net/ipv6/conf/" + kernelCable + "/keep_addr_on_down"
	require.NoError(t, os.WriteFile(keep, []byte("1"), 0))
	t.Cleanup(func() { require.NoError(t, os.WriteFile(keep, []byte("0"), 0)) })
	addresses := func() string {
		out, err := exec.Command("ip", "-o", "addr", "show", "dev", kernelCable, "scope", "global").CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	before := addresses()
	keeps := os.Getenv("BED_KERNEL") != "6.1"
	for _, kernelActive := range []bool{false, true} {
		l := p.link(t, linkConfig{memory: loadMemory, kernelActive: kernelActive})
		at, kept := 1+rand.IntN(60), false
		loaded(l, func(n int) {
			if n == at {
				command(t, "ip", "link", "set", kernelCable, "down")
				command(t, "ip", "link", "set", kernelCable, "up")
			}
			if keeps && n == at+60 {
				kept = true
				require.NoError(t, l.kernel.id.Disconnect())
			}
		})
		for _, s := range []*side{l.user, l.kernel} {
			require.Error(t, s.ended())
		}
		require.Equal(t, keeps, kept)
	}
	require.Equal(t, before, addresses())
	l := p.link(t, linkConfig{memory: loadMemory})
	l.user.ok(l.user.run(l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: l.user.sgl(0, 1000)}, 0)),
		verbs.WCRDMARead)
}

// TestModuleUnloaded: the module cannot be unloaded while processes use it. Its device can be
// deleted, which ends their connections and waits until the processes have exited. Then the module
// can be unloaded and loaded again.
func TestModuleUnloaded(t *testing.T) {
	needModule(t)
	module := os.Getenv(moduleVariable)
	unharmed(t)
	server := child(t, "TestModuleKilledChild", "listen")
	_, address, _ := strings.Cut(server.Out.Await(t, "end of address"), "address ")
	client := child(t, "TestModuleKilledChild", strings.Fields(address)[0])
	processes := []*testprogram.Program{server, client}
	for _, p := range processes {
		p.Out.Await(t, "the load begins")
	}
	require.ErrorContains(t, try("rmmod", "siw"), "in use")
	for _, p := range processes {
		require.NotContains(t, p.Out.String(), "the load has ended")
	}
	deleted := start(t, []string{"rdma", "link", "del", kernelDevice})
	for _, p := range processes {
		p.Out.Await(t, "the load has ended")
	}
	require.False(t, deleted.HasEnded(), "there are processes that use the device")
	for _, p := range processes {
		require.NoError(t, p.Signal(syscall.SIGKILL))
	}
	deleted.Ends(t, 0)
	command(t, "rmmod", "siw")
	command(t, "insmod", module)
	command(t, "rdma", "link", "add", kernelDevice, "type", "siw", "netdev", kernelCable)
}
