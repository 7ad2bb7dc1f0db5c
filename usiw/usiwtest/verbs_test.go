// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbstest"
)

// TestVerbs runs the parts of the conformance suite that move data, over a wire: a NIC works on any
// kind of stream.
func TestVerbs(t *testing.T) {
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		wire := usiwtest.NewWire()
		nic := func() *usiw.NIC {
			n, err := usiw.New(usiw.Config{Network: wire})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, n.Close()) })
			return n
		}
		return verbstest.Fabric{Active: nic().Device(), Passive: nic().Device(), Listen: "passive:0"}
	}, "Send", "Write", "Read", "Atomic", "Immediate", "MW", "Invalidate", "Order", "List", "Depth", "Disconnect",
		"Progress")
}
