// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	o, err := parse(nil)
	require.NoError(t, err)
	require.Equal(t, 5, o.rounds)
	require.Nil(t, o.only)
	require.Empty(t, o.out)

	o, err = parse([]string{"-rounds", "1", "-only", "UCX|C TCP", "-time", "2s"})
	require.NoError(t, err)
	require.Equal(t, 1, o.rounds)
	require.Equal(t, 2*time.Second, o.seconds)
	require.True(t, o.only.MatchString("C TCP, 64 B"))
	require.False(t, o.only.MatchString("Go TCP"))

	for _, args := range [][]string{{"ADDRESS"}, {"-rounds", "0"}, {"-rounds", "-5"}, {"-time", "0s"}, {"-only", "("}, {"-size", "1"}} {
		_, err = parse(args)
		require.Error(t, err, args)
	}
}

// TestParseOut: what is kept is of everything, and of no fewer than 5 rounds. The refusal comes before the measurement.
func TestParseOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables.md")
	for _, rounds := range []string{"5", "6", "100"} {
		o, err := parse([]string{"-rounds", rounds, "-out", file})
		require.NoError(t, err)
		require.Equal(t, file, o.out)
	}
	for _, rounds := range []string{"1", "4"} {
		err := measure([]string{"-rounds", rounds, "-out", file})
		require.ErrorContains(t, err, "-rounds "+rounds)
		require.ErrorContains(t, err, file)
		require.ErrorContains(t, err, "5 rounds")
	}
	err := measure([]string{"-out", file, "-only", "UCX"})
	require.ErrorContains(t, err, "-only UCX")
	require.NoFileExists(t, file)
}
