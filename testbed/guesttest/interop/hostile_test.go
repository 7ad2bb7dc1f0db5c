// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
)

// trouble matches the lines that the kernel's log must not have, whatever programs and peers do. (The guest itself fails on an oops.)
var trouble = regexp.MustCompile(`(?i)warning|\bbug\b|call trace|oops|corrupt|leak|use.after.free|refcount|general protection|` +
	`hung task|blocked for more than|stall|lockup`)

// kernelLog returns the lines of the kernel's log.
func kernelLog(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("dmesg").Output()
	require.NoError(t, err)
	return strings.Split(string(out), "\n")
}

// ownerPID finds the thread that made an object of the kernel's RDMA subsystem.
var ownerPID = regexp.MustCompile(` pid (\d+) `)

// objects lists what programs have of the kernel's RDMA subsystem, but for the context of this process, which stays open.
func objects(t *testing.T) (list []string) {
	t.Helper()
	for _, kind := range []string{"cm_id", "qp", "srq", "cq", "mr", "ctx", "pd"} {
		out, err := exec.Command("rdma", "resource", "show", kind).CombinedOutput()
		require.NoError(t, err, "%s", out)
		for line := range strings.Lines(string(out)) {
			owner := ownerPID.FindStringSubmatch(line)
			if owner == nil {
				continue
			}
			if _, err := os.Stat("/proc/self/task/" + owner[1]); kind != "ctx" || err != nil {
				list = append(list, kind+": "+strings.TrimSpace(line))
			}
		}
	}
	return list
}

// unharmed begins a test that tries to harm the kernel. When all is closed, no object may be left of it, and the kernel's log must
// have no new line of trouble.
func unharmed(t *testing.T) {
	t.Helper()
	before := kernelLog(t)
	had := len(objects(t))
	t.Cleanup(func() {
		left := objects(t)
		for end := time.Now().Add(waitLimit); len(left) > had && time.Now().Before(end); left = objects(t) {
			time.Sleep(50 * time.Millisecond)
		}
		require.LessOrEqual(t, len(left), had, "objects are left:\n%s", strings.Join(left, "\n"))
		for _, line := range kernelLog(t) {
			if trouble.MatchString(line) && !strings.Contains(line, "clocksource: ") {
				require.True(t, slices.Contains(before, line), "the kernel's log: %s", line)
			}
		}
	})
}

// childVariable tells a test that it is to do its work in a process of its own, which another test kills or ruins.
const childVariable = "GOVERBS_TEST_CHILD"

// child runs a test of this binary in a process of its own, which finds arg in childVariable.
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
