// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// Fabric holds the devices on which the suite runs: two devices that can connect to each other, or
// the same device twice.
type Fabric struct {
	// Active is the connecting device, Passive the listening device.
	Active, Passive *verbs.Device
	// Listen is the address for listeners on Passive, "host:port" with port 0. Active connects to
	// the same host.
	Listen string
	// Second is the host part of another address of Passive that Active can reach, preferably of
	// the other address family ("" = none).
	Second string
	// ActiveFirst means that the passive side sends nothing before the active side has. This is the
	// case on iWARP without the peer-to-peer setup of RFC 6581.
	ActiveFirst bool
	// Others are further devices of any kind.
	Others []*verbs.Device
	// Record is called with the result of every test and every named part of one (nil = not
	// called).
	Record func(Result)
}

// listen returns the IP address in Listen, or zero if it is not one.
func (f *Fabric) listen() netip.Addr {
	ap, err := netip.ParseAddrPort(f.Listen)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr()
}

// userSpace reports whether the fabric is package usiw's, which follows every rule of this suite;
// kernel drivers do not.
func (f *Fabric) userSpace() bool { return !ofKernel(f.Passive) }

// ofKernel reports whether a device, or the device it wraps, belongs to a kernel driver.
func ofKernel(d *verbs.Device) bool {
	_, ok := verbs.Ability[verbs.ProviderKernelDevice](d.Provider())
	return ok
}

// test is one entry of the suite. Each gets its own world.
type test struct {
	name string
	run  func(w *world) outcome
}

// subjects lists the parts of the suite in the order in which they run.
var subjects = []struct {
	name  string
	tests []test
}{
	{"Device", deviceTests},
	{"GID", gidTests},
	{"PD", pdTests},
	{"MR", mrTests},
	{"Memory", memoryTests},
	{"Send", sendTests},
	{"Write", writeTests},
	{"Read", readTests},
	{"Page", pageTests},
	{"Atomic", atomicTests},
	{"Immediate", immediateTests},
	{"MW", mwTests},
	{"MW1", mw1Tests},
	{"Invalidate", invalidateTests},
	{"Order", orderTests},
	{"List", listTests},
	{"CQ", cqTests},
	{"CQResize", cqResizeTests},
	{"Channel", channelTests},
	{"QP", qpTests},
	{"SRQ", srqTests},
	{"ByHand", handTests},
	{"UC", ucTests},
	{"UD", udTests},
	{"AH", ahTests},
	{"Multicast", mcastTests},
	{"Limits", limitTests},
	{"Lifetime", lifetimeTests},
	{"Foreign", foreignTests},
	{"Events", eventTests},
	{"Connect", connectTests},
	{"Depth", depthTests},
	{"Disconnect", disconnectTests},
	{"Progress", progressTests},
	{"Alloc", allocTests},
}

// Run runs the whole suite as subtests of t. It calls open once for every subject; open must use
// t.Cleanup to close what it opens. The suite leaves no objects or connections behind.
func Run(t *testing.T, open func(t *testing.T) Fabric) { RunSubjects(t, open, Subjects()...) }

// Subjects returns the names of the parts of the suite in the order in which Run runs them.
func Subjects() []string {
	names := make([]string, len(subjects))
	for i, s := range subjects {
		names[i] = s.name
	}
	return names
}

// RunSubjects is like Run, but runs only the named Subjects. An unknown name fails the test.
func RunSubjects(t *testing.T, open func(t *testing.T) Fabric, names ...string) {
	for _, name := range names {
		i := slices.Index(Subjects(), name)
		require.NotEqual(t, -1, i, "%q is not a subject of the suite", name)
		t.Run(name, func(t *testing.T) {
			f := open(t)
			for _, c := range subjects[i].tests {
				rec := &record{name: name + "/" + c.name}
				ok := t.Run(c.name, func(t *testing.T) { newWorld(t, f, rec).run(c.run) })
				(&world{f: f, rec: rec}).report(!ok)
			}
		})
	}
}
