// SPDX-License-Identifier: BSD-3-Clause

package fabrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// TestKernelFabrics: a program sees the same on all five fabrics.
func TestKernelFabrics(t *testing.T) { onAll(t) }

// TestKernelByHand is the part of it that is about QPs which the program connects.
func TestKernelByHand(t *testing.T) { onAll(t, "row24/") }

func onAll(t *testing.T, only ...string) {
	t.Helper()
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	columns := []string{"rxe0", "siw0", "usiw0", "usiw0-plain", "usiw0+siw0"}
	o := Options{Columns: columns, Required: columns, Only: only, Verbose: true, Stdout: t.Output(), Stderr: t.Output()}
	require.NoError(t, devices.WithNIC(t.Context(), siw.Config{}, func(nic *verbs.Device) error { return Run(t.Context(), nic, o) }))
}
