// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbstest"
)

// forwardedSubjects are those in which a wrapper has most to forward. The whole suite runs on it
// over the user-space RNIC, in internal/forward.
var forwardedSubjects = []string{"GID", "MW1", "CQResize", "SRQ", "UD", "AH", "Multicast", "Foreign"}

// chosenSubjects returns those that GOVERBS_SUBJECTS names, all for "all", and the usual ones if it
// is not set.
func chosenSubjects(usual []string) []string {
	switch chosen := os.Getenv("GOVERBS_SUBJECTS"); chosen {
	case "":
		return usual
	case "all":
		return verbstest.Subjects()
	default:
		return strings.Split(chosen, ",")
	}
}

// TestForwarded runs parts of the suite on devices that wrap the kernel's and only forward. The
// results must match the matrix of the wrapped devices. GOVERBS_SUBJECTS selects other parts, and
// "all" selects all.
func TestForwarded(t *testing.T) {
	subjects := chosenSubjects(forwardedSubjects)
	expected := readMatrix(t, guestKernel())
	for test := range expected {
		subject, _, _ := strings.Cut(test, "/")
		if !slices.Contains(subjects, subject) {
			delete(expected, test)
		}
	}
	require.NotEmpty(t, expected)
	for _, device := range []string{"rxe0", "siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			column := columnOf(t, func(t *testing.T) verbstest.Fabric {
				f := fabrics[device](t)
				below := f.Active
				f.Active = forward.Wrap(below)
				f.Passive, f.Others = f.Active, append(f.Others, below)
				t.Cleanup(func() { require.NoError(t, f.Active.CloseShared()) })
				return f
			}, subjects...)
			for _, diff := range differences(expected, device, column) {
				t.Error(diff)
			}
		})
	}
}
