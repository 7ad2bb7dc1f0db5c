// SPDX-License-Identifier: BSD-3-Clause

package verbstest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbstest"
)

// conformance is the body of a provider's test:
//
//	func TestVerbs(t *testing.T) { conformance(t) }
//
// It opens a device for each subject and lists what the device lacks. A provider that supports
// everything calls verbstest.Run.
func conformance(t *testing.T) (results []verbstest.Result) {
	open := func(t *testing.T) verbstest.Fabric {
		nic, err := usiw.New(usiw.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := nic.Close(); err != nil {
				t.Error(err)
			}
		})
		return verbstest.Fabric{Active: nic.Device(), Passive: nic.Device(), Listen: "127.0.0.1:0",
			Record: func(r verbstest.Result) { results = append(results, r) }}
	}
	verbstest.RunSubjects(t, open, "Immediate", "Multicast")
	for _, r := range results {
		if len(r.Lacks) > 0 {
			t.Logf("%s: the device lacks %v", r.Test, r.Lacks)
		}
	}
	return results
}

// A provider's test can run any of the suite's subjects.
func Example() {
	for some := range slices.Chunk(verbstest.Subjects(), 11) {
		fmt.Println(strings.Join(some, " "))
	}
	// Output:
	// Device GID PD MR Memory Send Write Read Page Atomic Immediate
	// MW MW1 Invalidate Order List CQ CQResize Channel QP SRQ ByHand
	// UC UD AH Multicast Limits Lifetime Foreign Events Connect Depth Disconnect
	// Progress Alloc
}
