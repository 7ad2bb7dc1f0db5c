// SPDX-License-Identifier: BSD-3-Clause

package testprogram

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// lookAgain is the polling interval of an Output.
const lookAgain = 5 * time.Millisecond

// Output collects what a program writes. It may be read while the program is running.
type Output struct {
	program *Program

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write adds to the output.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns what the program has written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Await waits until the program writes text and returns the whole output so far. The test fails if
// the program ends first.
func (o *Output) Await(t testing.TB, text string) string {
	t.Helper()
	if err := o.await(Limit, text); err != nil {
		t.Fatal(err)
	}
	return o.String()
}

// AwaitMatch waits until a regular expression matches the output, and returns the match and its
// groups. The test fails if the program ends first.
func (o *Output) AwaitMatch(t testing.TB, expr string) (found []string) {
	t.Helper()
	re := regexp.MustCompile(expr)
	if !o.until(Limit, func(text string) bool {
		found = re.FindStringSubmatch(text)
		return found != nil
	}) {
		t.Fatalf("has not written a match of %q: %v", expr, o.program)
	}
	return found
}

// Shows waits up to limit until the output contains one of texts, and reports whether it does. It
// returns early if the program ends.
func (o *Output) Shows(limit time.Duration, texts ...string) bool {
	return o.until(limit, func(all string) bool {
		for _, text := range texts {
			if strings.Contains(all, text) {
				return true
			}
		}
		return false
	})
}

func (o *Output) await(limit time.Duration, text string) error {
	if !o.Shows(limit, text) {
		return fmt.Errorf("has not written %q: %v", text, o.program)
	}
	return nil
}

// until waits until wanted accepts the output, and reports whether it does. Once the program has
// ended the output is complete, so it is checked a last time.
func (o *Output) until(limit time.Duration, wanted func(text string) bool) bool {
	for deadline := time.Now().Add(limit); ; o.program.EndsWithin(lookAgain) {
		last := o.program.HasEnded() || time.Now().After(deadline)
		if wanted(o.String()) {
			return true
		}
		if last {
			return false
		}
	}
}
