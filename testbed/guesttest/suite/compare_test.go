// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbstest"
)

// TestDifferences: differences between the matrix and the results are reported in both directions,
// and so are tests that are missing on either side.
func TestDifferences(t *testing.T) {
	expected := matrix{
		"A/Passes":   {"usiw0": pass},
		"A/Lacks":    {"usiw0": "srq: EOPNOTSUPP"},
		"A/Lacks/In": {"usiw0": absent},
		"A/Whole":    {"usiw0": pass},
		"A/Whole/In": {"usiw0": pass},
	}
	lack := []verbstest.Lack{{What: "srq", Errno: "EOPNOTSUPP"}}
	same := []verbstest.Result{{Test: "A/Passes"}, {Test: "A/Lacks", Lacks: lack}, {Test: "A/Whole/In"},
		{Test: "A/Whole"}}
	require.Empty(t, differences(expected, "usiw0", found(same)))
	for want, change := range map[string]func(r []verbstest.Result) []verbstest.Result{
		"usiw0: A/Passes: srq: EOPNOTSUPP, the matrix says: pass": func(r []verbstest.Result) []verbstest.Result {
			r[0].Lacks = lack
			return r
		},
		"usiw0: A/Lacks: pass, the matrix says: srq: EOPNOTSUPP": func(r []verbstest.Result) []verbstest.Result {
			return append(r, verbstest.Result{Test: "A/Lacks"})
		},
		"usiw0: A/Lacks: srq: none, the matrix says: srq: EOPNOTSUPP": func(r []verbstest.Result) []verbstest.Result {
			r[1].Lacks = []verbstest.Lack{{What: "srq", Errno: "none"}}
			return r
		},
		"usiw0: A/Passes: failed, the matrix says: pass": func(r []verbstest.Result) []verbstest.Result {
			r[0].Failed = true
			return r
		},
		"usiw0: A/Whole/In: -, the matrix says: pass": func(r []verbstest.Result) []verbstest.Result {
			return append(r[:2], r[3])
		},
		"usiw0: A/New: pass, the matrix does not have the test": func(r []verbstest.Result) []verbstest.Result {
			return append(r, verbstest.Result{Test: "A/New"})
		},
	} {
		changed := change(append([]verbstest.Result(nil), same...))
		require.Contains(t, differences(expected, "usiw0", found(changed)), want)
	}
}

// TestWrite: a written matrix can be read again.
func TestWrite(t *testing.T) {
	m := readMatrix(t, guestKernel())
	file := filepath.Join(t.TempDir(), "matrix.md")
	columns := map[string]map[string]string{"usiw0": {}}
	for test, row := range m {
		columns["usiw0"][test] = row["usiw0"]
	}
	bare(guestKernel()).write(t, file, m, columns)
	require.FileExists(t, file)
	require.Len(t, readTable(t, file, 1+len(devices)), len(m))
	columns["usiw0"]["Z/New"] = pass
	bare(guestKernel()).write(t, file, m, columns)
	require.Len(t, readTable(t, file, 1+len(devices)), len(m)+1)
}
