// SPDX-License-Identifier: BSD-3-Clause

package verbstest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs/verbstest"
)

// A provider's test runs the suite, or some subjects of it.
func Example() {
	// The function of a test in a file *_test.go of the provider.
	_ = func(t *testing.T) {
		verbstest.RunSubjects(t, func(t *testing.T) verbstest.Fabric {
			nic, err := siw.New(siw.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nic.Close() })
			return verbstest.Fabric{Active: nic.Device(), Passive: nic.Device(), Listen: "127.0.0.1:0"}
		}, "Send", "Read")
	}
	fmt.Println(slices.Contains(verbstest.Subjects(), "Send"), slices.Contains(verbstest.Subjects(), "Read"))
	// Output: true true
}
