// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// table formats lines of cells as markdown or in columns.
func table(markdown bool, lines [][]string) string {
	var b strings.Builder
	if markdown {
		for i, l := range lines {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(l, " | "))
			if i == 0 {
				b.WriteString(strings.Repeat("|---", len(l)) + "|\n")
			}
		}
		return b.String()
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(w, strings.Join(l, "\t"))
	}
	_ = w.Flush()
	return b.String()
}

// report returns two tables: the rows, and the subjects they are based on.
func report(p *plan, r results, markdown bool) string {
	rows := [][]string{{"row", "ratio", "median", "range", "best/best", "target", "stretch", "target is", "stretch is"}}
	for _, w := range p.rows {
		x := r.ratio(w)
		sign := ">="
		if w.less {
			sign = "<="
		}
		line := []string{w.id, w.what, number(x.median),
			number(best(x.rounds, true)) + " to " + number(best(x.rounds, false)), number(x.bestOfEach)}
		if w.goal == 0 {
			line = append(line, "", "", "reported", "")
		} else {
			line = append(line, fmt.Sprintf("%s %.2f", sign, w.goal), fmt.Sprintf("%.2f", w.hope),
				string(x.judge(w.goal)), string(x.judge(w.hope)))
		}
		rows = append(rows, line)
	}
	for _, c := range p.counted {
		rows = append(rows, []string{c.id, c.what, "", "", "", c.goal, "", c.verdict, ""})
	}
	subjects := [][]string{{"subject", "unit", "median", "best", "range"}}
	for _, s := range p.subjects {
		v := r[s]
		subjects = append(subjects, []string{s.name, s.unit, number(median(v)), number(best(v, s.less)),
			number(best(v, true)) + " to " + number(best(v, false))})
	}
	return table(markdown, rows) + "\n" + table(markdown, subjects)
}

// number formats a figure with at least three significant digits.
func number(f figure) string {
	switch {
	case math.IsNaN(f):
		return "-"
	case math.Abs(f) >= 100:
		return fmt.Sprintf("%.0f", f)
	case math.Abs(f) >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// In a document, the report is placed between one of the first three lines and the next endMark.
const (
	beginMark  = "<!-- Written by make bench-peers. -->"
	busyMark   = "<!-- Written by make bench-peers BUSY=1. -->"
	kernelMark = "<!-- Written by make bench-guest. -->"
	endMark    = "<!-- Up to here. -->"
)

// record inserts text after the mark beginMark in a document. It creates the file if it does not
// exist.
func record(file, beginMark, text string) error {
	doc, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		doc, err = []byte("# Performance\n\n"+beginMark+"\n"+endMark+"\n"), nil
	}
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(doc, []byte(beginMark))
	_, after, ends := bytes.Cut(rest, []byte(endMark))
	if !found || !ends {
		return fmt.Errorf("%s has no place for the figures: no line %q before a line %q", file, beginMark, endMark)
	}
	text = beginMark + "\n\n" + text + "\n" + endMark
	return os.WriteFile(file, slices.Concat(before, []byte(text), after), 0o644)
}
