// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"os"
	"testing"
)

// Lacks ends a test on a machine that lacks something. In CI the test fails.
func Lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what + "; in CI that is a failure")
}
