// SPDX-License-Identifier: BSD-3-Clause

package fabrics

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
)

// TestKnown: a known difference is printed with its reason and is no failure, even if it does not
// occur. Any other difference is a failure.
func TestKnown(t *testing.T) {
	known := scenario.Result{Name: "row20/a", Known: "rxe of Linux 6.12: it does",
		Difference: "usiw0 and rxe0: event 3"}
	unseen := scenario.Result{Name: "row20/b", Known: "rxe of Linux 6.12: it does", TracesEqual: true}
	unknown := scenario.Result{Name: "row20/c", Difference: "usiw0 and rxe0: event 4"}
	for _, asJSON := range []bool{false, true} {
		var stdout, stderr bytes.Buffer
		o := Options{JSON: asJSON, Stdout: &stdout, Stderr: &stderr}
		for _, r := range []scenario.Result{known, unseen, unknown} {
			o.show(r)
		}
		out, none := &stdout, &stderr
		if asJSON {
			out, none = none, out
		}
		require.Empty(t, none.String())
		require.Equal(t, "row20/a                          known    usiw0 and rxe0: event 3 (rxe of Linux 6.12: it does)\n"+
			"row20/b                          equal    this time, though a difference is known: rxe of Linux 6.12: it does\n"+
			"row20/c                          DIFFERS  usiw0 and rxe0: event 4\n", out.String())
	}
	r := report{Report: scenario.Report{Columns: []string{"usiw0", "rxe0"},
		Scenarios: []scenario.Result{known, unseen}}}
	require.NoError(t, r.failed())
	r.Scenarios = append(r.Scenarios, unknown)
	require.EqualError(t, r.failed(), "1 of 3 scenarios differ")
}
