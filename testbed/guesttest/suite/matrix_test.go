// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs/verbstest"
)

// The cells of the matrix. A cell that is neither lists what the device lacks: "mw1: EOPNOTSUPP, srq: none".
const (
	pass = "pass"
	// absent is the cell of a part of a test that the device does not have: it lacks what the test is about, or the test has other
	// parts on that fabric. Tests themselves are never absent.
	absent = "-"
)

// matrix is what is expected, or what was found: test name -> device -> cell.
type matrix map[string]map[string]string

const sourcesFile = "../../matrix/sources.md"

// devices are the columns.
var devices = []string{"usiw0", "rxe0", "siw0"}

// kernels are those for which there is a matrix, of the choices of testbed/guest.
var kernels = []string{"6.1", "6.12", "newest"}

// guestKernel is which of them the guest has. Outside the guest, where only usiw0 is, it makes no difference.
func guestKernel() string { return cmp.Or(os.Getenv("BED_KERNEL"), kernels[0]) }

func matrixFile(kernel string) string { return "../../matrix/linux-" + kernel + ".md" }

// readTable reads the rows of a markdown table that has n columns; the header's two lines are left out.
func readTable(t *testing.T, file string, n int) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		require.Len(t, cells, n, "%s: %s", file, line)
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	require.Greater(t, len(rows), 2, file)
	return rows[2:]
}

func readMatrix(t *testing.T, kernel string) matrix {
	t.Helper()
	m := make(matrix)
	file := matrixFile(kernel)
	for _, row := range readTable(t, file, 1+len(devices)) {
		require.NotContains(t, m, row[0], "%s has the row twice", file)
		m[row[0]] = make(map[string]string)
		for i, d := range devices {
			m[row[0]][d] = row[1+i]
			require.False(t, row[1+i] == absent && strings.Count(row[0], "/") < 2, "%s: %s has no %s", matrixFile, d, row[0])
		}
	}
	return m
}

// cell is what the matrix says of a result.
func cell(r verbstest.Result) string {
	if r.Failed {
		return "failed"
	}
	if len(r.Lacks) == 0 {
		return pass
	}
	var texts []string
	for _, l := range r.Lacks {
		texts = append(texts, l.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// found makes a column out of results.
func found(results []verbstest.Result) map[string]string {
	column := make(map[string]string)
	for _, r := range results {
		column[r.Test] = cell(r)
	}
	return column
}

// differences compares a column with what is expected.
func differences(expected matrix, device string, column map[string]string) []string {
	var diffs []string
	for test, row := range expected {
		if got := cmp.Or(column[test], absent); got != row[device] {
			diffs = append(diffs, fmt.Sprintf("%s: %s: %s, the matrix says: %s", device, test, got, row[device]))
		}
	}
	for test, got := range column {
		if _, known := expected[test]; !known {
			diffs = append(diffs, fmt.Sprintf("%s: %s: %s, the matrix does not have the test", device, test, got))
		}
	}
	slices.Sort(diffs)
	return diffs
}

// write writes the matrix of a kernel with the columns that were found in place of the expected ones.
func write(t *testing.T, file, kernel string, m matrix, columns map[string]map[string]string) {
	t.Helper()
	all := make(matrix)
	for test, row := range m {
		all[test] = maps.Clone(row)
	}
	for device, column := range columns {
		for test := range all {
			delete(all[test], device)
		}
		for test, c := range column {
			if all[test] == nil {
				all[test] = make(map[string]string)
			}
			all[test][device] = c
		}
	}
	var b strings.Builder
	b.WriteString("# What each device does: Linux " + kernel + `

One row for every test of package verbstest, with the device connected to itself, in one process. Two hosts, two devices and other
peers are the subject of ` + "`devices`, `faults` and `interop`" + ` in [guesttest](../guesttest).

"pass": everything in the test was tested and is as it should be. Otherwise the cell
names what the device lacks and the errno that came from below, with which the test has seen it refused as "not supported".
With "none" goverbs refused it itself, before the driver, or the driver does something else, as sending no event or allowing
what it should deny; [sources.md](sources.md) says which, and who. What the parts of a test lack stands in its own row too. A test
that ends before its subject without naming what the device lacks has failed. "-": a part of a test that the device does not
have, since it lacks what the test is about or its fabric has rules of its own; a test is never left out.

` + "`go test ./testbed/guesttest/suite`" + ` (usiw0) and ` + "`make test-guest`" + ` (all three) compare the file with what they find, and fail if
it differs in either direction. A run with GOVERBS_MATRIX=FILE writes what it found to FILE.

| test | ` + strings.Join(devices, " | ") + " |\n|---|" + strings.Repeat("---|", len(devices)) + "\n")
	for _, test := range slices.Sorted(maps.Keys(all)) {
		if len(all[test]) == 0 {
			continue
		}
		b.WriteString("| " + test)
		for _, d := range devices {
			b.WriteString(" | " + cmp.Or(all[test][d], absent))
		}
		b.WriteString(" |\n")
	}
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
}
