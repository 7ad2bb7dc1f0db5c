// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// lacks ends a test on a machine that lacks something. In CI the test fails.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what + "; in CI that is a failure")
}
