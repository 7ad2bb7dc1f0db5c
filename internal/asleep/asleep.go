// SPDX-License-Identifier: BSD-3-Clause

// Package asleep lets a test wait until goroutines are blocked where it expects them, instead of
// sleeping and hoping.
package asleep

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// limit is the longest that Until waits.
const limit = 30 * time.Second

// waits are the states, as tracebacks name them, in which a goroutine waits for another one.
// Waiting for a mutex is not among them: that goroutine is about to proceed.
var waits = []string{"IO wait", "select", "chan receive", "chan send", "sync.Cond.Wait", "sync.WaitGroup.Wait"}

// Until returns once at least n goroutines are blocked in the named functions. Every name, for
// example "verbs.(*CQ).Wait", must appear in the goroutine's traceback; the name of the function
// that started the goroutine distinguishes a test's own goroutines from those of parallel tests.
// Until fails the test after 30 s.
func Until(t testing.TB, n int, names ...string) {
	t.Helper()
	if err := until(limit, n, names); err != nil {
		t.Fatal(err)
	}
}

func until(limit time.Duration, n int, names []string) error {
	buf := make([]byte, 1<<16)
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Microsecond) {
		size := runtime.Stack(buf, true)
		for size == len(buf) {
			buf = make([]byte, 2*len(buf))
			size = runtime.Stack(buf, true)
		}
		got := count(string(buf[:size]), names)
		if got >= n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d goroutines wait in %s:\n\n%s", got, n, strings.Join(names, ", "), buf[:size])
		}
	}
}

// count returns how many goroutines in a traceback are blocked with all the names in their stacks.
func count(traceback string, names []string) int {
	n := 0
next:
	for g := range strings.SplitSeq(traceback, "\n\n") {
		if !waiting(g) {
			continue
		}
		for _, name := range names {
			if !strings.Contains(g, name) {
				continue next
			}
		}
		n++
	}
	return n
}

// waiting looks for one of the waits in the first line of a goroutine's traceback, for example
// "goroutine 18 [IO wait, 2 minutes]:".
func waiting(goroutine string) bool {
	_, state, _ := strings.Cut(goroutine, "[")
	for _, w := range waits {
		if rest, ok := strings.CutPrefix(state, w); ok && strings.IndexAny(rest, "], ") == 0 {
			return true
		}
	}
	return false
}
