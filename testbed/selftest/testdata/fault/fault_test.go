// SPDX-License-Identifier: BSD-3-Clause

// Package fault brings the guest's kernel down, for the test of what suite makes of that.
package fault

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestFault does nothing if there is a file GOVERBS_TEST_ONCE: the suite makes that when it runs
// the test once more.
func TestFault(t *testing.T) {
	if _, err := os.Stat(os.Getenv("GOVERBS_TEST_ONCE")); err == nil {
		return
	}
	out, err := exec.Command("modprobe", "oops").CombinedOutput()
	time.Sleep(time.Minute) // until the machine is off
	t.Fatalf("the kernel has survived it: %v: %s", err, out)
}
