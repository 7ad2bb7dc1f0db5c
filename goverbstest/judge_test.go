// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// trial is the testing.TB of a test that another test examines: it keeps what the test reports.
type trial struct {
	testing.TB
	dir      string
	failed   bool
	errors   []string
	logs     []string
	cleanups []func()
}

// errFatal ends a trial.
var errFatal = fmt.Errorf("FailNow was called")

// judge runs a test to completion and returns what it reported.
func judge(t *testing.T, test func(tb testing.TB)) *trial {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir()) // a failed trial leaves a file there (os.TempDir), unless it names a directory
	tr := &trial{TB: t, dir: t.TempDir()}
	tr.run(test)
	return tr
}

// run runs a test and its cleanups.
func (tr *trial) run(test func(tb testing.TB)) {
	func() {
		defer func() {
			if r := recover(); r != nil && r != errFatal {
				panic(r)
			}
		}()
		test(tr)
	}()
	for _, f := range slices.Backward(tr.cleanups) {
		f()
	}
}

func (tr *trial) Helper()                      {}
func (tr *trial) TempDir() string              { return tr.dir }
func (tr *trial) Name() string                 { return "Test/of captures" }
func (tr *trial) Failed() bool                 { return tr.failed }
func (tr *trial) Cleanup(f func())             { tr.cleanups = append(tr.cleanups, f) }
func (tr *trial) Logf(format string, a ...any) { tr.logs = append(tr.logs, fmt.Sprintf(format, a...)) }
func (tr *trial) Fatalf(format string, a ...any) {
	tr.Errorf(format, a...)
	tr.FailNow()
}

func (tr *trial) FailNow() {
	tr.failed = true
	panic(errFatal)
}

func (tr *trial) Errorf(format string, a ...any) {
	tr.failed = true
	tr.errors = append(tr.errors, fmt.Sprintf(format, a...))
}

// error returns the only error of the trial.
func (tr *trial) error(t *testing.T) string {
	t.Helper()
	if len(tr.errors) != 1 {
		t.Fatalf("%d errors:\n%s", len(tr.errors), strings.Join(tr.errors, "\n"))
	}
	return tr.errors[0]
}
