// SPDX-License-Identifier: BSD-3-Clause

// Package fault crashes the guest's kernel, to test how suite handles that.
package fault

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestFault does nothing if the file GOVERBS_TEST_ONCE exists: the suite creates it when it runs
// the test again.
func TestFault(t *testing.T) {
	if _, err := os.Stat(os.Getenv("GOVERBS_TEST_ONCE")); err == nil {
		return
	}
	out, err := exec.Command("modprobe", "oops").CombinedOutput()
	time.Sleep(time.Minute) // until the machine is off
	t.Fatalf("the kernel has survived it: %v: %s", err, out)
}
