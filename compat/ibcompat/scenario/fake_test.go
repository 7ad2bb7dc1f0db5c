// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package scenario

import (
	"cmp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// fakeFabric is the wrapped InfiniBand adapter of the fake libraries.
func fakeFabric(t *testing.T) Fabric {
	t.Helper()
	fakeverbs.Start(t)
	fakeverbs.Loopback(true)
	in, err := verbs.DeviceByName("fake0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, in.CloseShared()) })
	dev, err := ibcompat.Wrap(in, ibcompat.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
	return Fabric{Name: "fake0", Active: dev, Passive: dev, Listen: "192.0.2.1:0"}
}

// TestFake checks that every scenario finishes on the fake adapter, and has the same trace when
// repeated and through a forwarding device.
func TestFake(t *testing.T) {
	for _, s := range All() {
		t.Run(s.Name, func(t *testing.T) {
			switch {
			case s.Name == "row01/rnr-exceeded":
				t.Skip("the fake adapter waits for ever; in the guest rxe does not")
			case strings.HasPrefix(s.Name, "row19/qp-denies"):
				t.Skip("the fake adapter does not look at the access flags of QPs; rxe does")
			case s.Name == "row24/nobody-there" || s.Name == "row24/peer-gone":
				t.Skip("the fake adapter does not notice that nobody answers; in the guest rxe does")
			case s.Name == "row02/large" && race.Enabled:
				t.Skip("so much memory takes long with the race detector; without it, it does not")
			}
			f := fakeFabric(t)
			requireEqual(t, s, f, planted(t, f, lie{}))
		})
	}
}

// requireEqual requires that a scenario finishes on all fabrics with the same trace.
func requireEqual(t *testing.T, s *Scenario, fabrics ...Fabric) {
	t.Helper()
	r, err := Compare(t.Context(), fabrics, []*Scenario{s}, nil)
	require.NoError(t, err)
	require.True(t, r.OK, "%s\n%v", r.Scenarios[0].Difference, r.Scenarios[0].Traces)
}

// TestKnown checks that a known difference of a driver and kernel is reported but is no failure,
// and that any other difference is one.
func TestKnown(t *testing.T) {
	good, bad, flushed := verbs.WCSuccess.String(), verbs.WCLocProtErr.String(), verbs.WCWRFlushErr.String()
	sent := func(id uint64, status string) Event {
		return Event{End: "active", Kind: "sent", ID: id, Status: status}
	}
	usual := Trace{sent(1, good), sent(2, good), sent(3, bad), sent(4, flushed),
		{End: "passive", Kind: "memory", Data: "before"}}
	changed := func(i int, e Event) Trace {
		changed := append(Trace(nil), usual...)
		changed[i] = e
		return changed
	}
	rxe := Trace{sent(1, flushed), sent(2, flushed), sent(3, flushed), sent(4, flushed), usual[4]}
	for name, c := range map[string]struct {
		// for each trace: "rxe", "other" (a device of another driver) or "user" (the user-space
		// RNIC)
		columns          string
		traces           []Trace
		kernel, scenario string // "" = 6.12, row20/bad-source
		equal            bool   // no difference
		known            bool   // a known difference
		between          string // the columns whose difference is reported
	}{
		"as is known": {columns: "user rxe", traces: []Trace{usual, rxe}, known: true,
			between: "user0 and rxe1"},
		"the first column": {columns: "rxe user user", traces: []Trace{rxe, usual, usual}, known: true,
			between: "user1 and rxe0"},
		"a later kernel": {columns: "user rxe", traces: []Trace{usual, rxe}, kernel: "7.3.1-amd64",
			known: true, between: "user0 and rxe1"},
		"partly": {columns: "user rxe", traces: []Trace{usual, changed(1, rxe[1])}, known: true,
			between: "user0 and rxe1"},
		"two such columns": {columns: "rxe rxe", traces: []Trace{rxe, usual}, known: true,
			between: "rxe0 and rxe1"},
		"it does not show": {columns: "user rxe", traces: []Trace{usual, usual}, equal: true,
			known: true},
		"nothing is known": {columns: "user other", traces: []Trace{usual, usual}, equal: true},
		"an earlier kernel": {columns: "user rxe", traces: []Trace{usual, rxe}, kernel: "6.1.0-49-amd64",
			between: "user0 and rxe1"},
		"another driver": {columns: "user other", traces: []Trace{usual, rxe},
			between: "user0 and other1"},
		"not one of the kernel's": {columns: "other user", traces: []Trace{usual, rxe},
			between: "other0 and user1"},
		"another scenario": {columns: "user rxe", traces: []Trace{usual, rxe},
			scenario: "row20/bad-sink", between: "user0 and rxe1"},
		"another status": {columns: "user rxe", traces: []Trace{usual, changed(0, sent(1, bad))},
			between: "user0 and rxe1"},
		"a success instead of a flush": {columns: "user rxe", traces: []Trace{usual, changed(3, sent(4, good))},
			between: "user0 and rxe1"},
		"another request": {columns: "user rxe", traces: []Trace{usual, changed(0, sent(9, flushed))},
			between: "user0 and rxe1"},
		"memory": {columns: "user rxe",
			traces:  []Trace{usual, changed(4, Event{End: "passive", Kind: "memory", Data: "none"})},
			between: "user0 and rxe1"},
		"less": {columns: "user rxe", traces: []Trace{usual, rxe[:4]}, between: "user0 and rxe1"},
		"others differ besides": {columns: "user rxe user",
			traces: []Trace{usual, rxe, changed(0, sent(1, bad))}, between: "user0 and user2"},
		"others differ, and then as that": {columns: "user user rxe",
			traces: []Trace{usual, changed(0, sent(1, bad)), rxe}, between: "user0 and user1"},
		"others differ by what is known": {columns: "user rxe other", traces: []Trace{usual, rxe, rxe},
			between: "user0 and other2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeFabric(t)
			attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
			attr.VendorID = vendorRXE
			fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
			other, err := verbs.DeviceByName("fake1")
			require.NoError(t, err)
			nic, err := usiw.New(usiw.Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, nic.Close()) }()
			devices := map[string]*verbs.Device{"rxe": f.Active, "other": other, "user": nic.Device()}
			defer func(was func() string) { kernelRelease = was }(kernelRelease)
			kernelRelease = func() string { return cmp.Or(c.kernel, "6.12.73-1-amd64") }

			var fabrics []Fabric
			traces := make(map[string]Trace)
			for i, kind := range strings.Fields(c.columns) {
				f := Fabric{Name: kind + strconv.Itoa(i), Active: devices[kind], Passive: devices[kind]}
				fabrics, traces[f.Name] = append(fabrics, f), c.traces[i]
			}
			s := &Scenario{Name: cmp.Or(c.scenario, "row20/bad-source"),
				run: func(p *program) { p.trace = traces[p.fabric.Name] }}
			r, err := Compare(t.Context(), fabrics, []*Scenario{s}, nil)
			require.NoError(t, err)
			got := r.Scenarios[0]
			require.Equal(t, c.equal, got.TracesEqual, got.Difference)
			require.Equal(t, c.equal || c.known, r.OK, got.Difference)
			require.Equal(t, r.OK, got.OK())
			if c.known {
				require.Equal(t, exceptions[0].text(), got.Known)
			} else {
				require.Empty(t, got.Known)
			}
			if !c.equal {
				require.Contains(t, got.Difference, c.between+": event ")
				require.Len(t, got.Traces, len(fabrics))
			}
		})
	}
}
