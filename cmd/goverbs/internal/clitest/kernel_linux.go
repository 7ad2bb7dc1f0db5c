// SPDX-License-Identifier: BSD-3-Clause

package clitest

import (
	"os/exec"
	"testing"
)

// KernelAddress maps each of the guest's devices to its IPv4 and IPv6 address.
var KernelAddress = map[string][2]string{"rxe0": {"10.78.0.1", "fd00:78::1"}, "siw0": {"10.77.0.1", "fd00:77::1"}}

// StartIn starts the program in a network namespace.
func StartIn(t *testing.T, namespace string, args ...string) *Running {
	t.Helper()
	ip, err := exec.LookPath("ip")
	if err != nil {
		ip = "/usr/sbin/ip"
	}
	return StartCommand(t, exec.Command(ip, append([]string{"netns", "exec", namespace, Program}, args...)...))
}
