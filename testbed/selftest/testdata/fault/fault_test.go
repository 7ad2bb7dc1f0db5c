// SPDX-License-Identifier: BSD-3-Clause

// Package fault brings the guest's kernel down, for the test of what suite makes of that.
package fault

import (
	"os/exec"
	"testing"
	"time"
)

func TestFault(t *testing.T) {
	out, err := exec.Command("modprobe", "oops").CombinedOutput()
	time.Sleep(time.Minute) // until the machine is off
	t.Fatalf("the kernel has survived it: %v: %s", err, out)
}
