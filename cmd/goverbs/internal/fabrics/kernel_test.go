// SPDX-License-Identifier: BSD-3-Clause

package fabrics

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// usual are the scenarios that run for every change: one for each way in which a fabric differs
// from the others, and those with known differences.
var usual = []string{"row01/rnr-wait", "row02/send-placed", "row03/write-denied", "row04/among-sends",
	"row05/send-imm-too-long", "row06/masked-fetch-add", "row08/one-after-the-other", "row10/passive-first",
	"row12/solicited", "row15/mixed",
	"row17/disconnect", "row20/bad-source", "row22/again"}

// TestKernelFabrics: a program observes the same on all five fabrics, except for the known
// differences, which must occur. GOVERBS_FABRICS=all runs all scenarios.
func TestKernelFabrics(t *testing.T) {
	only := usual
	if os.Getenv("GOVERBS_FABRICS") == "all" {
		only = nil
	}
	onAll(t, only...)
}

// TestKernelByHand runs only the scenarios with QPs that the program connects itself.
func TestKernelByHand(t *testing.T) { onAll(t, "row24/") }

// TestModuleFabrics: over siw0 with the module of kernel/siw-7306, whose one-sided operations are
// native, a program observes the same as on the user-space RNIC. GOVERBS_FABRICS=all runs all
// scenarios.
func TestModuleFabrics(t *testing.T) {
	if os.Getenv("GOVERBS_TEST_SIW7306") == "" {
		t.Skip("for siw with RFC 7306: make test-kernel-siw")
	}
	only := usual
	if os.Getenv("GOVERBS_FABRICS") == "all" {
		only = nil
	}
	on(t, []string{"siw0", "usiw0", "usiw0+siw0"}, only...)
}

func onAll(t *testing.T, only ...string) {
	t.Helper()
	rdmatest.KernelDevice(t, "rxe0")
	on(t, []string{"rxe0", "siw0", "usiw0", "usiw0-plain", "usiw0+siw0"}, only...)
}

func on(t *testing.T, columns []string, only ...string) {
	t.Helper()
	rdmatest.KernelDevice(t, "siw0")
	o := Options{Columns: columns, Required: columns, Only: only, Verbose: true, Stdout: t.Output(), Stderr: t.Output()}
	require.NoError(t, devices.WithNIC(t.Context(), usiw.Config{}, func(nic *verbs.Device) error {
		r, err := run(t.Context(), nic, o)
		for _, s := range r.Scenarios {
			if s.TracesEqual && s.Known != "" {
				t.Errorf("%s: no difference, though one is known: %s", s.Name, s.Known)
			}
		}
		return err
	}))
}
