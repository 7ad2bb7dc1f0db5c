// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// A goroutine inherits the profiler labels of the goroutine that starts it. New sets a label that
// distinguishes the goroutines of a test from those of tests that run concurrently. The goroutine
// profile contains the labels.

// label is the key of the label; the value is a number.
const label = "goverbstest"

// module is the prefix of the names of this module's functions.
const module = "github.com/goverbs/goverbs/"

// labels counts the values of the label.
var labels atomic.Uint64

// labelGoroutines sets a new label value on the calling goroutine, and returns it. Goroutines that
// it starts, directly or indirectly, inherit the value.
func labelGoroutines() string {
	value := strconv.FormatUint(labels.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(label, value)))
	return value
}

// unlabelGoroutine removes the label from the calling goroutine.
func unlabelGoroutine() { pprof.SetGoroutineLabels(context.Background()) }

// goroutines returns the stacks of the goroutines that have the label value and may not stay.
func goroutines(value string, mayStay []func(stack string) bool) []string {
	var b strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return []string{err.Error()} // a strings.Builder has no write errors
	}
	mark := fmt.Sprintf("%q:%q", label, value)
	var found []string
	for record := range strings.SplitSeq(b.String(), "\n\n") {
		n, stack, ok := parseRecord(record, mark)
		if !ok || ours(stack) || slices.ContainsFunc(mayStay, func(may func(string) bool) bool { return may(stack) }) {
			continue
		}
		for range n {
			found = append(found, stack)
		}
	}
	return found
}

// parseRecord parses a record of the goroutine profile: the number of goroutines with the same
// stack and labels, "@" and addresses; a line "# labels:"; and for each frame, innermost first, a
// line with address, function, file and line. It reports false if the record lacks the label.
func parseRecord(record, mark string) (n int, stack string, ok bool) {
	var b strings.Builder
	for line := range strings.Lines(record) {
		line = strings.TrimSuffix(line, "\n")
		rest, frame := strings.CutPrefix(line, "#\t")
		switch {
		case strings.HasPrefix(line, "# labels:"):
			ok = strings.Contains(line, mark)
		case frame:
			_, rest, _ = strings.Cut(rest, "\t")
			fmt.Fprintf(&b, "%s\n", strings.Join(strings.Fields(rest), " "))
		default:
			if count, _, is := strings.Cut(line, " @ "); is {
				n, _ = strconv.Atoi(count)
			}
		}
	}
	return n, b.String(), ok
}

// ours reports whether the goroutine started in a function of this module's libraries, or in one of
// the standard library that runs until the process exits. A NIC's goroutines end with the NIC, and
// may have the label of any test that used it.
func ours(stack string) bool {
	for _, frame := range slices.Backward(strings.Split(strings.TrimSuffix(stack, "\n"), "\n")) {
		if strings.HasPrefix(frame, "sync.(*WaitGroup).Go") {
			continue
		}
		return slices.ContainsFunc(
			[]string{module + "usiw.", module + "usiw/usiwtest.", module + "cm.", module + "verbs.", "os/signal.",
				"runtime."}, func(prefix string) bool { return strings.HasPrefix(frame, prefix) })
	}
	return false
}
