// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"os"
	"testing"
)

// Lacks skips a test because the machine lacks something. In CI the test fails instead.
func Lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what + "; in CI that is a failure")
}
