// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestConnections runs the connection tests of the conformance suite over libraries without a
// device.
func TestConnections(t *testing.T) {
	for _, c := range []struct {
		name, listen       string
		activeFirst, newer bool
	}{
		{"fake0", "192.0.2.1:0", false, false},
		{"fake1", "198.51.100.1:0", true, false},
		{"fake0", "192.0.2.1:0", false, true},
		{"fake1", "198.51.100.1:0", true, true},
	} {
		name := c.name
		if c.newer {
			name += " of a newer kernel"
		}
		t.Run(name, func(t *testing.T) {
			fakeverbs.Start(t)
			fakeverbs.SetNewer(c.newer)
			t.Cleanup(func() { require.NoError(t, device(t, c.name).CloseShared()) })
			fakeverbs.Loopback(true)
			attr := fakeverbs.DeviceAttr(fakeverbs.Fake0)
			attr.VendorID = 0xffffff // rxe's, for which the provider tracks depths
			fakeverbs.SetDeviceAttr(fakeverbs.Fake0, attr)
			verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
				dev := device(t, c.name)
				return verbstest.Fabric{Active: dev, Passive: dev, Listen: c.listen, ActiveFirst: c.activeFirst}
			}, "Connect", "Depth", "Disconnect")
		})
	}
}

// TestPortTaken checks that the suite connects again from another port if the one chosen by
// librdmacm is in use.
func TestPortTaken(t *testing.T) {
	fakeverbs.Start(t)
	t.Cleanup(func() { require.NoError(t, device(t, "fake1").CloseShared()) })
	fakeverbs.Loopback(true)
	before, failed := fakeverbs.Calls("rdma_connect"), 0
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		for _, errno := range []syscall.Errno{syscall.EADDRINUSE, syscall.EADDRNOTAVAIL} {
			failed++
			fakeverbs.Fail("rdma_connect", failed, errno)
		}
		return verbstest.Fabric{Active: device(t, "fake1"), Passive: device(t, "fake1"), Listen: "198.51.100.1:0",
			ActiveFirst: true}
	}, "Disconnect")
	require.Equal(t, 2, failed)
	require.Greater(t, fakeverbs.Calls("rdma_connect"), before+failed)
}

// device returns a device by its name.
func device(t *testing.T, name string) *verbs.Device {
	t.Helper()
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	return dev
}
