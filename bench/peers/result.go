// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"math"
	"slices"
)

// results holds the figures of each subject, one per round; NaN where a sample failed.
type results map[*subject][]figure

// median returns the median of the valid figures, NaN if there are none.
func median(v []figure) figure {
	v = slices.DeleteFunc(slices.Clone(v), math.IsNaN)
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// best returns the best of the valid figures, NaN if there are none.
func best(v []figure, less bool) figure {
	v = slices.DeleteFunc(slices.Clone(v), math.IsNaN)
	switch {
	case len(v) == 0:
		return math.NaN()
	case less:
		return slices.Min(v)
	}
	return slices.Max(v)
}

// ratio is the result of a row: the ratios of samples of the same round, and the ratio of the best
// samples.
type ratio struct {
	row        *row
	rounds     []figure
	median     figure
	bestOfEach figure
}

// of returns the ratio of two figures, or their difference.
func (w *row) of(over, under figure) figure {
	if w.extra {
		return over - under
	}
	return over / under
}

func (r results) ratio(w *row) ratio {
	x := ratio{row: w}
	for i, over := range r[w.over] {
		x.rounds = append(x.rounds, w.of(over, r[w.under][i]))
	}
	x.median = median(x.rounds)
	x.bestOfEach = w.of(best(r[w.over], w.over.less), best(r[w.under], w.under.less))
	return x
}

// verdict says whether a ratio reaches a target.
type verdict string

const (
	reached verdict = "reached"
	close15 verdict = "within 15 %"
	missed  verdict = "missed"
	none    verdict = ""
)

// judge compares the median with a target. The ratio of the best samples is not meaningful here,
// because they are from different rounds.
func (x *ratio) judge(target float64) verdict {
	if target == 0 {
		return none
	}
	holds := func(target float64) bool {
		if x.row.less {
			return x.median <= target
		}
		return x.median >= target
	}
	slack := 0.85
	if x.row.less {
		slack = 1.15
	}
	switch {
	case holds(target):
		return reached
	case holds(target * slack):
		return close15
	}
	return missed
}
