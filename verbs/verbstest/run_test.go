// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNames: results are kept by name, so that names are plain and never given twice.
func TestNames(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	seen := make(map[string]bool)
	for _, s := range subjects {
		require.Regexp(t, plain, s.name)
		require.NotEmpty(t, s.tests, s.name)
		for _, c := range s.tests {
			name := s.name + "/" + c.name
			require.Regexp(t, plain, c.name)
			require.False(t, seen[name], name)
			require.NotNil(t, c.run, name)
			seen[name] = true
		}
	}
	require.Len(t, Subjects(), len(subjects))
	require.Greater(t, len(seen), 150)
}

// TestAddFields checks the definition that the suite judges by, on the vectors.
func TestAddFields(t *testing.T) {
	for _, v := range fetchAddVectors {
		require.Equal(t, v.result, addFields(v.original, v.add, v.mask), v.name)
	}
}
