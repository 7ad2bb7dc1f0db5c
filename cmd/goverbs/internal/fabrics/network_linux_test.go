// SPDX-License-Identifier: BSD-3-Clause

package fabrics

import (
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// insideVariable is set in a process of the test whose network is that of host 1.
const insideVariable = "GOVERBS_FABRICS_INSIDE"

// TestKernelTwoHosts: over a network that delays and loses packets, completed data are in the
// peer's memory on every fabric. The hosts of siw and of the user-space RNIC are two network
// namespaces, those of rxe the two ends of a virtual cable.
func TestKernelTwoHosts(t *testing.T) {
	for _, d := range []string{"siw1", "siw2", "rxe1", "rxe2"} {
		rdmatest.KernelDevice(t, d)
	}
	reference := column{name: "usiw0", active: newNIC(t, usiw.Config{}), listen: "127.0.0.1:0"}
	if os.Getenv(insideVariable) != "" {
		slow(t, "1", "d1", "3%")
		slow(t, "2", "d2", "3%")
		const listen = "10.77.0.2:0"
		usiw, plain := newNIC(t, usiw.Config{}), newNIC(t, usiw.Config{Name: devices.Plain, Without: ext.Operations})
		columns := []column{
			{name: "siw1+siw2", active: kernelDevice(t, "siw1"), passive: kernelDevice(t, "siw2"), listen: listen,
				host: "h2"},
			{name: "usiw0+usiw0", active: usiw, listen: listen, host: "h2"},
			{name: "usiw0-plain+usiw0-plain", active: plain, listen: listen, host: "h2"},
			{name: "usiw0+siw2", active: usiw, passive: kernelDevice(t, "siw2"), listen: listen, host: "h2"},
		}
		confirmed(t, append(columns, reference)...)
		require.Positive(t, dropped(t, "1", "d1")+dropped(t, "2", "d2"), "nothing was lost")
		for _, c := range columns[:2] {
			c.relaxed = true
			unconfirmed(t, reference, c)
		}
		return
	}
	t.Run("rxe", func(t *testing.T) {
		slow(t, "", "e1", "1%")
		slow(t, "", "e2", "1%")
		confirmed(t, column{name: "rxe1+rxe2", active: kernelDevice(t, "rxe1"), passive: kernelDevice(t, "rxe2"),
			listen: "10.78.0.2:0", source: netip.MustParseAddrPort("10.78.0.1:0")}, reference)
		require.Positive(t, dropped(t, "", "e1")+dropped(t, "", "e2"), "nothing was lost")
	})
	t.Run("siw", func(t *testing.T) {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", "h1", self, "-test.run=^TestKernelTwoHosts$",
			"-test.v")
		cmd.Env = append(os.Environ(), insideVariable+"=1")
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		require.NoError(t, cmd.Run())
	})
}

// column is a fabric over the network.
type column struct {
	name            string
	active, passive *verbs.Device // nil passive = active
	listen          string
	source          netip.AddrPort
	host            string // network namespace of the passive side ("" = this process's)
	relaxed         bool
}

func (c column) fabric(t *testing.T) scenario.Fabric {
	t.Helper()
	f := scenario.Fabric{Name: c.name, Active: c.wrap(t, c.active), Listen: c.listen, Source: c.source}
	if f.Passive = f.Active; c.passive != nil {
		f.Passive = c.wrap(t, c.passive)
	}
	if c.host != "" {
		f.Host = func(open func()) { inNamespace(t, c.host, open) }
	}
	return f
}

func (c column) wrap(t *testing.T, in *verbs.Device) *verbs.Device {
	t.Helper()
	dev, err := ibcompat.Wrap(in, ibcompat.Config{Relaxed: c.relaxed})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return dev
}

// placed are the scenarios about completions and what they imply for the peer's memory.
var placed = []string{"row02/write-placed", "row02/send-placed", "row02/one-for-all", "row02/not-placed", "row15/mixed"}

func chosenFor(names ...string) (list []*scenario.Scenario) {
	for _, s := range scenario.All() {
		if slices.Contains(names, s.Name) {
			list = append(list, s)
		}
	}
	return list
}

// confirmed asserts that the scenarios do the same in all columns.
func confirmed(t *testing.T, columns ...column) {
	t.Helper()
	var fabrics []scenario.Fabric
	for _, c := range columns {
		fabrics = append(fabrics, c.fabric(t))
	}
	r, err := scenario.Compare(t.Context(), fabrics, chosenFor(placed...), nil)
	require.NoError(t, err)
	require.Len(t, r.Scenarios, len(placed))
	for _, s := range r.Scenarios {
		require.True(t, s.TracesEqual, "%s: %s", s.Name, s.Difference)
	}
}

// unconfirmed asserts that the data have not arrived when a relaxed request completes. Otherwise
// the network would be too fast for confirmed to detect anything.
func unconfirmed(t *testing.T, reference, relaxed column) {
	t.Helper()
	r, err := scenario.Compare(t.Context(), []scenario.Fabric{reference.fabric(t), relaxed.fabric(t)},
		chosenFor("row02/write-placed"), nil)
	require.NoError(t, err)
	require.Regexp(t, `passive: memory 0 `, r.Scenarios[0].Difference, relaxed.name)
}

func newNIC(t *testing.T, cfg usiw.Config) *verbs.Device {
	t.Helper()
	nic, err := usiw.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	return nic.Device()
}

func kernelDevice(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	return dev
}

// inNamespace calls a function in a network namespace.
func inNamespace(t *testing.T, name string, call func()) {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with the goroutine
		ns, err := os.Open("/run/netns/" + name)
		if err == nil {
			if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
				call()
			}
			_ = ns.Close()
		}
		done <- err
	}()
	require.NoError(t, <-done)
}

// slow makes a network device delay and lose what it sends, until the test ends. host is its
// network namespace, "" = this process's.
func slow(t *testing.T, host, dev, loss string) {
	t.Helper()
	tc(t, host, "qdisc", "add", "dev", dev, "root", "netem", "delay", "30ms", "loss", loss)
	t.Cleanup(func() { tc(t, host, "qdisc", "del", "dev", dev, "root") })
}

// dropped returns how many packets were lost.
func dropped(t *testing.T, host, dev string) int {
	t.Helper()
	m := regexp.MustCompile(`dropped (\d+)`).FindStringSubmatch(tc(t, host, "-s", "qdisc", "show", "dev", dev))
	require.NotNil(t, m)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func tc(t *testing.T, host string, args ...string) string {
	t.Helper()
	args = append([]string{"tc"}, args...)
	if host != "" {
		args = append([]string{"ip", "netns", "exec", "h" + host}, args...)
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
	return string(out)
}
