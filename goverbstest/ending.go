// SPDX-License-Identifier: BSD-3-Clause

package goverbstest

import (
	"sync"
	"testing"
	"time"
)

// Limits of the checks.
const (
	// grace is how long goroutines have, after the test, to close handles and to return. Goroutines
	// that stop with the test's context need some time, and an orderly shutdown of a connection may
	// wait for the peer.
	grace = 10 * time.Second
	// pause is the time between two checks.
	pause = 20 * time.Millisecond
)

// ending is what must be checked and closed when a test ends, for all its networks.
type ending struct {
	tb    testing.TB
	dir   string // for temporary files
	label string // label value of the test's goroutines

	mu       sync.Mutex // guards the fields below
	networks []*Network
	mayStay  []func(stack string) bool
}

// endings holds the ending of each test.
var endings struct {
	sync.Mutex
	m map[testing.TB]*ending
}

// endingOf returns the ending of a test. From the first call on, goroutines that the caller starts
// belong to the test.
func endingOf(tb testing.TB) *ending {
	endings.Lock()
	defer endings.Unlock()
	e := endings.m[tb]
	if e == nil {
		e = &ending{tb: tb, dir: tb.TempDir(), label: labelGoroutines()} // the directory is removed after run
		if endings.m == nil {
			endings.m = make(map[testing.TB]*ending)
		}
		endings.m[tb] = e
		tb.Cleanup(e.run)
	}
	return e
}

func (e *ending) add(nw *Network, mayStay func(stack string) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks = append(e.networks, nw)
	if mayStay != nil {
		e.mayStay = append(e.mayStay, mayStay)
	}
}

// run checks what the test has left behind, closes its NICs, and keeps the captures if the test
// failed.
func (e *ending) run() {
	e.tb.Helper()
	endings.Lock()
	delete(endings.m, e.tb)
	endings.Unlock()
	unlabelGoroutine()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, nw := range e.networks {
		nw.closeHandles(e.tb)
	}
	for _, nw := range e.networks {
		nw.close()
	}
	left := eventually(func() []string { return goroutines(e.label, e.mayStay) })
	if len(left) > 0 {
		e.tb.Errorf("goverbstest: %d goroutines of the test still run:\n%s", len(left), list(left))
	}
	for _, nw := range e.networks {
		if nw.rec != nil {
			nw.rec.end(e.tb)
		}
	}
}

// eventually calls look until nothing is left, for at most the grace period, and returns what is
// left.
func eventually[T any](look func() []T) []T {
	left := look()
	for end := time.Now().Add(grace); len(left) > 0 && time.Now().Before(end); left = look() {
		time.Sleep(pause)
	}
	return left
}
