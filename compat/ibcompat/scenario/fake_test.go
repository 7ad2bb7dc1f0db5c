// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package scenario

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/verbs"
)

// fakeFabric is the InfiniBand adapter of the fake libraries, wrapped.
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

// TestFake: every scenario comes to its end on the fake adapter, and has the same trace again and through a device that forwards.
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

// requireEqual requires that a scenario comes to its end on fabrics, and does the same on all.
func requireEqual(t *testing.T, s *Scenario, fabrics ...Fabric) {
	t.Helper()
	r, err := Compare(t.Context(), fabrics, []*Scenario{s}, nil)
	require.NoError(t, err)
	require.True(t, r.OK, "%s\n%v", r.Scenarios[0].Difference, r.Scenarios[0].Traces)
}
