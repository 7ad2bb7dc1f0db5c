// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Report is the result of comparing scenarios on several fabrics, its columns.
type Report struct {
	Columns   []string `json:"columns"`
	Scenarios []Result `json:"scenarios"`
	// OK reports whether there are at least two columns and, for each scenario, all traces are
	// equal or differ only in a known way.
	OK bool `json:"ok"`
}

// Result is the result of one scenario.
type Result struct {
	Name        string `json:"name"`
	Row         int    `json:"row"`
	TracesEqual bool   `json:"traces_equal"`
	Reduced     string `json:"reduced,omitempty"` // see Scenario
	// Seconds is the duration of the scenario on each column, in order.
	Seconds []float64 `json:"seconds"`
	// Known describes the known difference of a driver on certain kernels, if one applies to a
	// column ("" = none). If the traces differ, then only in this way; if they are equal, it did
	// not occur.
	Known string `json:"known,omitempty"`
	// Difference says which columns differ, and where, or why a column has no trace.
	Difference string `json:"difference,omitempty"`
	// Traces are the traces of the columns, if they differ.
	Traces []Trace `json:"traces,omitempty"`
}

// Compare runs each scenario on every fabric. If each is not nil, it is called with every result as
// it becomes available. When ctx is done, Compare returns the results so far and ctx.Err().
func Compare(ctx context.Context, fabrics []Fabric, scenarios []*Scenario, each func(Result)) (Report, error) {
	r := Report{OK: len(fabrics) > 1 && len(scenarios) > 0}
	for _, f := range fabrics {
		r.Columns = append(r.Columns, f.Name)
	}
	for _, s := range scenarios {
		res := s.compare(ctx, fabrics)
		if err := ctx.Err(); err != nil {
			r.OK = false
			return r, err
		}
		r.OK = r.OK && res.OK()
		r.Scenarios = append(r.Scenarios, res)
		if each != nil {
			each(res)
		}
	}
	return r, nil
}

// OK reports whether the traces are equal or differ only in a known way.
func (r *Result) OK() bool { return r.TracesEqual || r.Known != "" }

func (s *Scenario) compare(ctx context.Context, fabrics []Fabric) Result {
	r := Result{Name: s.Name, Row: s.Row(), Reduced: s.Reduced}
	traces, special := make([]Trace, len(fabrics)), make([]*exception, len(fabrics))
	for i, f := range fabrics {
		start := time.Now()
		t, err := s.Run(ctx, f)
		traces[i] = t
		r.Seconds = append(r.Seconds, time.Since(start).Seconds())
		if err == nil {
			special[i], err = s.exception(f)
		}
		switch {
		case r.Difference != "":
		case err != nil:
			r.Difference = err.Error()
		case len(t) == 0:
			r.Difference = s.Name + " on " + f.Name + ": the trace is empty"
		case t.late():
			r.Difference = fmt.Sprintf("%s on %s: event %d has not come within %v: %v", s.Name, f.Name, len(t)-1, Limit,
				t[len(t)-1])
		}
	}
	if r.Difference == "" {
		r.judge(fabrics, traces, special)
	}
	if r.TracesEqual = r.Difference == ""; !r.TracesEqual {
		r.Traces = traces
	}
	return r
}

// judge compares every trace with that of the first column without a known difference, or of the
// first column if all have one.
func (r *Result) judge(fabrics []Fabric, traces []Trace, special []*exception) {
	first := max(0, slices.Index(special, nil))
	unknown := false
	for i, t := range traces {
		d, x := traces[first].Diff(t), special[i]
		if x != nil && r.Known == "" {
			r.Known = x.text()
		}
		// A known difference may occur by chance, so two columns that have one may also differ.
		known := x != nil && (x.explains(traces[first], t) || special[first] != nil && x.explains(t, traces[first]))
		if d != "" && !unknown && (r.Difference == "" || !known) {
			r.Difference = fabrics[first].Name + " and " + fabrics[i].Name + ": " + d
			unknown = !known
		}
	}
	if unknown {
		r.Known = ""
	}
}
