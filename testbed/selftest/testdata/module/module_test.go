// SPDX-License-Identifier: BSD-3-Clause

package module

import (
	"os"
	"testing"
)

func TestInTheGuest(t *testing.T) {
	for name, want := range map[string]string{
		"GOVERBS_TEST_REQUIRE": "rxe0,siw0", "GOVERBS_ANY": "a b", "GOTRACEBACK": "all", "OTHER": "",
	} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q, not %q", name, got, want)
		}
	}
	for _, file := range []string{"/sys/class/infiniband/siw0", "module.go"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if os.Getenv("GOVERBS_FAIL") != "" {
		t.Error("GOVERBS_FAIL is set")
	}
	if half(4) != 2 {
		t.Error("half of 4 is not 2")
	}
}
