// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// The conformance suite over loopback, which exercises the code of both providers down to the
// library calls, including invalid ones. Subjects in which kernel drivers differ are left to tests
// on those devices.
func TestConformance(t *testing.T) {
	const vendorRXE = 0xffffff
	for _, c := range []struct {
		name, device, listen string
		vendor               uint32 // 0 = the device's own
		subjects             []string
	}{
		{"AtomicWrite", "fake0", "192.0.2.1:0", 0, []string{"Atomic", "Alloc"}},
		{"AtomicWriteLedger", "fake0", "192.0.2.1:0", vendorRXE, []string{"Atomic", "Alloc"}},
		{"fake0", "fake0", "192.0.2.1:0", 0,
			[]string{"GID", "PD", "Page", "Order", "List", "UC", "UD", "AH", "Foreign", "Alloc"}},
		{"fake1", "fake1", "198.51.100.1:0", 0,
			[]string{"GID", "PD", "Memory", "Page", "Immediate", "MW", "MW1", "Invalidate", "Order", "List",
				"Channel", "UC", "UD", "AH", "Limits", "Foreign", "Disconnect", "Alloc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeverbs.Start(t)
			if c.name != c.device {
				attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
				attr.CapFlags |= uint64(verbs.DeviceAtomicWrite)
				attr.VendorID = cmp.Or(c.vendor, attr.VendorID)
				fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
			}
			fakeverbs.Loopback(true)
			devices, err := verbs.Devices()
			require.NoError(t, err)
			for i, d := range devices {
				t.Cleanup(func() { require.NoError(t, d.CloseShared()) })
				if d.Info().Name != c.device {
					continue
				}
				verbstest.RunSubjects(t, func(*testing.T) verbstest.Fabric {
					return verbstest.Fabric{Active: d, Passive: d, Listen: c.listen,
						Others: slices.Delete(slices.Clone(devices), i, i+1)}
				}, c.subjects...)
				faked, missing := fakeverbs.Lookups()
				require.Subset(t, faked, []string{"ibv_create_qp", "rdma_connect"})
				require.Empty(t, missing, "of what the two providers call")
				return
			}
			t.Fatal("no such device in the list")
		})
	}
}
