// SPDX-License-Identifier: BSD-3-Clause

// Package rdmatest checks for leaks after the tests of every binary that creates verbs objects: it
// fails the run if an object was left open or a goroutine of the project is still running.
package rdmatest

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

const (
	// module is the prefix of the project's function names.
	module = "github.com/goverbs/goverbs/"
	// grace is how long goroutines and objects may take to finish after the last test: longer than
	// any time-out of an orderly shutdown.
	grace = 15 * time.Second
	// pause is the polling interval.
	pause = 10 * time.Millisecond
)

// Main runs the tests of a binary and exits; it is the body of TestMain. The exit status is that of
// the tests, or 1 if they passed but leaked: objects are listed with the stacks that created them,
// goroutines with their own.
func Main(m *testing.M) { os.Exit(run(m, grace, os.Stderr)) }

// run is Main without the exit.
func run(m interface{ Run() int }, patience time.Duration, w io.Writer) int {
	code := m.Run()
	if left := leaks(patience); len(left) > 0 {
		report(w, left)
		code = max(code, 1)
	}
	return code
}

// closeShared closes the shared contexts, which have no other owner. A context in use stays open,
// and whatever uses it is reported.
func closeShared() {
	devices, _ := verbs.Devices()
	for _, d := range devices {
		_ = d.CloseShared()
	}
}

// report writes what was left behind; identical entries are counted.
func report(w io.Writer, left []string) {
	fmt.Fprintf(w, "FAIL: %d left behind by the tests:\n", len(left))
	slices.Sort(left)
	for len(left) > 0 {
		same := 1
		for same < len(left) && left[same] == left[0] {
			same++
		}
		fmt.Fprintf(w, "%d x %s\n", same, left[0])
		left = left[same:]
	}
}

// leaks waits up to patience, so that closing in the background, as of connections of package
// rsocket, can finish. It then describes the objects that are still open and the project's
// goroutines that are still running.
func leaks(patience time.Duration) []string {
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		closeShared()
		left := goroutines() // first: one of them may be about to close an object
		for _, n := range lifetime.Live() {
			left = append(left, n.Describe())
		}
		if len(left) == 0 || !time.Now().Before(deadline) {
			return left
		}
	}
}

// goroutines returns the stacks of all other goroutines that run, or were started by, code of the
// project.
func goroutines() []string {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var found []string
	// The first stack is the caller's own. While tests run, the goroutine of TestMain is a
	// different one.
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i > 0 && strings.Contains(stack, module) && !strings.Contains(stack, "testing.(*M).Run(") {
			found = append(found, stack)
		}
	}
	return found
}
