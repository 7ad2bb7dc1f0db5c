// SPDX-License-Identifier: BSD-3-Clause

package verbstest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbstest"
)

// TestExample runs the example and requires results for the subjects it requests, and no others.
func TestExample(t *testing.T) {
	seen := map[string]bool{}
	var lacks []verbstest.Lack
	for _, r := range conformance(t) {
		require.False(t, r.Failed, r.Test)
		subject, _, _ := strings.Cut(r.Test, "/")
		seen[subject] = true
		lacks = append(lacks, r.Lacks...)
	}
	require.Equal(t, map[string]bool{"Immediate": true, "Multicast": true}, seen)
	require.Contains(t, lacks, verbstest.Lack{What: "multicast", Errno: "none"})
}
