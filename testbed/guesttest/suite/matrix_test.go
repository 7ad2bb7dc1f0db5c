// SPDX-License-Identifier: BSD-3-Clause

package suite

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbstest"
)

// The cells of the matrix. A cell with any other value lists what the device lacks: "mw1:
// EOPNOTSUPP, srq: none".
const (
	pass = "pass"
	// absent is the cell of a part of a test that does not exist on the device: it lacks the
	// subject, or the test has other parts on that fabric. Tests themselves are never absent.
	absent = "-"
)

// matrix holds expected or actual results: test name -> device -> cell.
type matrix map[string]map[string]string

const sourcesFile = "../../matrix/sources.md"

// devices are the columns.
var devices = []string{"usiw0", "rxe0", "siw0"}

// sheet is a file with a matrix.
type sheet struct {
	file    string
	columns []string
	title   string
	lead    string // the first paragraph
	reasons string // where the reasons for cells other than "pass" are given
	checked string // the last paragraph: what compares the file
}

// bare returns the sheet of the devices themselves with a kernel.
func bare(kernel string) sheet {
	return sheet{file: "../../matrix/linux-" + kernel + ".md", columns: devices,
		title: "What each device does: Linux " + kernel,
		lead: `One row for every test of package verbstest, with the device connected to itself, in one process. Two hosts, two devices and other
peers are the subject of ` + "`devices`, `faults` and `interop`" + ` in [guesttest](../guesttest).`,
		reasons: "[sources.md](sources.md)",
		checked: "`go test ./testbed/guesttest/suite`" + ` (usiw0) and ` + "`make test-guest`" + ` (all three) compare the file with what they find, and fail if
it differs in either direction. A run with GOVERBS_MATRIX=FILE writes what it found to FILE.`}
}

// ibColumns are the columns of the ib: sheet. The last has an ib: device at either end.
var ibColumns = []string{"ib:usiw0", "ib:usiw0-plain", "ib:rxe0", "ib:siw0", "ib:usiw0+ib:siw0"}

// wrapped returns the sheet of ib: devices with a kernel.
func wrapped(kernel string) sheet {
	return sheet{file: "../../matrix/ib-linux-" + kernel + ".md", columns: ibColumns,
		title: "What each ib: device does: Linux " + kernel,
		lead: `One row for every test of package verbstest, by the rules of InfiniBand, with the device connected to itself, or with the first device
of a column connecting to the second, in one process.`,
		reasons: "[semantics.md](../../docs/semantics.md#what-the-conformance-suite-finds-missing)",
		checked: "`go test ./testbed/guesttest/suite` and `make test-guest KERNEL=" + kernel + "`" + ` compare parts of the file with what they find, and fail if it
differs in either direction. ` + "`make test-matrices KERNEL=" + kernel + "`" + `, which is part of ` + "`make test-all`" + `, compares all of it. A run with
GOVERBS_IB_MATRIX=FILE writes what it found to FILE.`}
}

// kernels are the choices of testbed/guest for which there is a matrix.
var kernels = []string{"6.1", "6.12", "newest"}

// guestKernel returns which of them the guest has. Outside the guest, where there is only usiw0, it
// makes no difference.
func guestKernel() string { return cmp.Or(os.Getenv("BED_KERNEL"), kernels[0]) }

// readTable reads the rows of a markdown table with n columns, without the header's two lines.
func readTable(t *testing.T, file string, n int) [][]string {
	t.Helper()
	return readSection(t, file, "", n)
}

// readSection reads the table below a heading.
func readSection(t *testing.T, file, heading string, n int) [][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var rows [][]string
	in := heading == ""
	for line := range strings.Lines(string(text)) {
		if heading != "" && strings.HasPrefix(line, "#") {
			in = strings.TrimSpace(line) == heading
		}
		if !in || !strings.HasPrefix(line, "|") {
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
	return bare(kernel).read(t)
}

func (s sheet) read(t *testing.T) matrix {
	t.Helper()
	m := make(matrix)
	for _, row := range readTable(t, s.file, 1+len(s.columns)) {
		require.NotContains(t, m, row[0], "%s has the row twice", s.file)
		m[row[0]] = make(map[string]string)
		for i, d := range s.columns {
			m[row[0]][d] = row[1+i]
			require.False(t, row[1+i] == absent && strings.Count(row[0], "/") < 2, "%s: %s has no %s", s.file, d,
				row[0])
		}
	}
	return m
}

// cell returns the cell of the matrix for a result.
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

// columnOf runs subjects of package verbstest, all if none is named, and returns their results.
func columnOf(t *testing.T, open func(t *testing.T) verbstest.Fabric, subjects ...string) map[string]string {
	t.Helper()
	var mu sync.Mutex
	var results []verbstest.Result
	verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
		f := open(t)
		f.Record = func(r verbstest.Result) {
			mu.Lock()
			defer mu.Unlock()
			results = append(results, r)
		}
		return f
	}, subjects...)
	return found(results)
}

// found converts results to a column.
func found(results []verbstest.Result) map[string]string {
	column := make(map[string]string)
	for _, r := range results {
		column[r.Test] = cell(r)
	}
	return column
}

// differences compares a column with the expected one.
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

// write writes the matrix to a file, with the given columns replacing the expected ones.
func (s sheet) write(t *testing.T, file string, m matrix, columns map[string]map[string]string) {
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
	b.WriteString("# " + s.title + "\n\n" + s.lead + `

"pass": everything in the test was tested and is as it should be. Otherwise the cell
names what the device lacks and the errno that came from below, with which the test has seen it refused as "not supported".
With "none" goverbs refused it itself, before the driver, or the driver does something else, as sending no event or allowing
what it should deny; ` + s.reasons + ` says which, and who. What the parts of a test lack stands in its own row too. A test
that ends before its subject without naming what the device lacks has failed. "-": a part of a test that the device does not
have, since it lacks what the test is about or its fabric has rules of its own; a test is never left out.

` + s.checked + `

| test | ` + strings.Join(s.columns, " | ") + " |\n|---|" + strings.Repeat("---|", len(s.columns)) + "\n")
	for _, test := range slices.Sorted(maps.Keys(all)) {
		if len(all[test]) == 0 {
			continue
		}
		b.WriteString("| " + test)
		for _, d := range s.columns {
			b.WriteString(" | " + cmp.Or(all[test][d], absent))
		}
		b.WriteString(" |\n")
	}
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
}
