// SPDX-License-Identifier: BSD-3-Clause

package siw_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// lacks ends a test for want of something that machines may lack, but not those of CI.
func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what + "; in CI that is a failure")
}
