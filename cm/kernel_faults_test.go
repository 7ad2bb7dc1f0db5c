// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFaults: docs/support.md lists each fault. A fault has one rule, which applies only to its
// devices, and a rule has one fault.
func TestFaults(t *testing.T) {
	doc, err := os.ReadFile("../docs/support.md")
	require.NoError(t, err)
	of := make(map[string]string)
	for _, f := range faults {
		require.NotEmpty(t, f.what, f.id)
		require.NotEmpty(t, f.where, f.id)
		require.NotEmpty(t, f.kernels, f.id)
		require.Contains(t, string(doc), "`"+f.id+"`", "docs/support.md")
		v, n := reflect.ValueOf(f.rules), 0
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			n++
			name := v.Type().Field(i).Name
			require.Empty(t, of[name], "two faults need the rule %s", name)
			of[name] = f.id
			require.True(t, v.Field(i).Equal(reflect.ValueOf(rulesOf(iwarpDevices)).Field(i)), f.id)
			if f.of == allDevices {
				require.True(t, v.Field(i).Equal(reflect.ValueOf(anyRules).Field(i)), f.id)
			} else {
				require.True(t, reflect.ValueOf(anyRules).Field(i).IsZero(), f.id)
			}
		}
		if f.always != "" {
			require.Zero(t, n, f.id)
		} else {
			require.Equal(t, 1, n, f.id)
		}
	}
	require.Len(t, of, reflect.TypeFor[rules]().NumField(), "every rule has a fault")
}
