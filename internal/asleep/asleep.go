// SPDX-License-Identifier: BSD-3-Clause

// Package asleep tells a test that goroutines have got to where they wait, so that it does not
// sleep in the hope that they have.
package asleep

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// limit bounds Until.
const limit = 30 * time.Second

// waits are the states in which a goroutine waits for somebody else, as tracebacks name them. A
// mutex is not one: who waits for one is on its way.
var waits = []string{"IO wait", "select", "chan receive", "chan send", "sync.Cond.Wait", "sync.WaitGroup.Wait"}

// Until returns when n goroutines or more wait in the functions named. All of the names stand in
// the traceback of each of them, as "verbs.(*CQ).Wait"; the name of the function that started it
// tells a test's own goroutines from those of tests beside it. It fails the test after 30 s.
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

// count is how many goroutines of a traceback wait with all of names in their stacks.
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

// waiting looks at the first line of a goroutine: goroutine 18 [IO wait, 2 minutes]:
func waiting(goroutine string) bool {
	_, state, _ := strings.Cut(goroutine, "[")
	for _, w := range waits {
		if rest, ok := strings.CutPrefix(state, w); ok && strings.IndexAny(rest, "], ") == 0 {
			return true
		}
	}
	return false
}
