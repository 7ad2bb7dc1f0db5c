// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/kerneltest"
	"github.com/goverbs/goverbs/internal/testprogram"
)

// unharmed begins a test that tries to harm the kernel. After everything is closed, none of its
// objects may be left, and the kernel's log must have no new error message. (The guest itself fails
// on an oops.) The context of this process stays open.
func unharmed(t *testing.T) {
	t.Helper()
	kernel, err := kerneltest.Look("ctx")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kernel.Unharmed(waitLimit)) })
}

// childVariable makes a test do its work in a separate process, which another test kills or ruins.
const childVariable = "GOVERBS_TEST_CHILD"

// child runs a test of this binary in a separate process, with arg in childVariable.
func child(t *testing.T, name, arg string) *testprogram.Program {
	t.Helper()
	p := start(t, []string{"env", childVariable + "=" + arg, os.Args[0], "-test.run=^" + name + "$"})
	t.Cleanup(func() {
		if t.Failed() { // where it hangs
			_ = p.Signal(syscall.SIGQUIT)
			p.EndsWithin(waitLimit)
		}
	})
	return p
}

// childArg is the first line of a test that child runs.
func childArg(t *testing.T) string {
	t.Helper()
	arg := os.Getenv(childVariable)
	if arg == "" {
		t.Skip("runs in a process that another test starts")
	}
	return arg
}
