// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJudge: the median decides, regardless of the best samples.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		less                 bool
		median, best, target float64
		want                 verdict
	}{
		{false, 1, 0.5, 1, reached},
		{false, 0.99, 2, 1, close15},
		{false, 0.84, 2, 1, missed},
		{true, 1, 2, 1, reached},
		{true, 1.01, 0.5, 1, close15},
		{true, 1.16, 0.5, 1, missed},
		{true, 1, 1, 0, none},
	} {
		x := ratio{row: &row{less: c.less}, median: c.median, bestOfEach: c.best}
		require.Equal(t, c.want, x.judge(c.target), "%+v", c)
	}
}
