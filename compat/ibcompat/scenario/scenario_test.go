// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// named returns a scenario by name.
func named(t *testing.T, name string) *Scenario {
	t.Helper()
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	require.FailNow(t, "no scenario "+name)
	return nil
}

// TestNames checks that each of the 24 rows has at least two scenarios, one that must work and one
// that must not, and that names are unique.
func TestNames(t *testing.T) {
	rows, names := map[int]int{}, map[string]bool{}
	for _, s := range All() {
		require.Regexp(t, regexp.MustCompile(`^row(0[1-9]|1[0-9]|2[0-4])/[a-z-]+$`), s.Name)
		require.False(t, names[s.Name], s.Name)
		names[s.Name] = true
		rows[s.Row()]++
	}
	for row := 1; row <= 24; row++ {
		require.GreaterOrEqual(t, rows[row], 2, "row %d", row)
	}
}

// TestDiff checks that traces that differ in any field, in length or in order are distinguished.
func TestDiff(t *testing.T) {
	var base Event
	fields := reflect.ValueOf(&base).Elem()
	for i := range fields.NumField() {
		other := base
		switch f := reflect.ValueOf(&other).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Int:
			f.SetInt(1)
		default:
			f.SetUint(1)
		}
		name := fields.Type().Field(i).Name
		require.NotEmpty(t, Trace{base, base}.Diff(Trace{base, other}), name)
		require.NotEmpty(t, Trace{base, other}.Diff(Trace{other, base}), name)
		require.NotEmpty(t, Trace{other}.Diff(Trace{other, base}), name)
		require.Empty(t, Trace{base, other}.Diff(Trace{base, other}), name)
	}
}

// TestNothingToCompare checks that without a comparison the result is not "equal".
func TestNothingToCompare(t *testing.T) {
	r, err := Compare(t.Context(), nil, nil, nil)
	require.NoError(t, err)
	require.False(t, r.OK)
	r, err = Compare(t.Context(), make([]Fabric, 2), nil, nil)
	require.NoError(t, err)
	require.False(t, r.OK, "no scenario")

	ran := 0
	s := &Scenario{Name: "row01/test", run: func(p *program) { ran++; p.fact("ran", "%d", ran) }}
	r, err = Compare(t.Context(), make([]Fabric, 1), []*Scenario{s}, nil)
	require.NoError(t, err)
	require.True(t, r.Scenarios[0].TracesEqual)
	require.False(t, r.OK, "one column")
	require.Contains(t, s.String(), "row01/test")
	r, err = Compare(t.Context(), make([]Fabric, 2), []*Scenario{s}, nil)
	require.NoError(t, err)
	require.False(t, r.OK)
	require.Equal(t, ` and : event 0 is "both: fact ran 2" and "both: fact ran 3"`, r.Scenarios[0].Difference)
	require.Len(t, r.Scenarios[0].Traces, 2)

	silent := &Scenario{Name: "row01/silent", run: func(*program) {}}
	r, err = Compare(t.Context(), make([]Fabric, 2), []*Scenario{silent}, nil)
	require.NoError(t, err)
	require.False(t, r.OK, "empty traces")

	ctx, cancel := context.WithCancel(t.Context())
	stop := &Scenario{Name: "row01/stop", run: func(p *program) { cancel(); p.fact("ran", "") }}
	r, err = Compare(ctx, make([]Fabric, 2), []*Scenario{stop}, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, r.OK)
}
