// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"runtime"
	"sync"
)

// turnBytes is how much a goroutine receives, or sends, before others have their turn: some 100 us of work.
const turnBytes = 256 << 10

// A turn is for a goroutine of the NIC's that may have work without end, because a peer or a program sends without pause. After
// each turnBytes it lets everybody else run, those that wait for the network included; and no more such goroutines go on than
// there are processors, the others wait in line. So somebody else's small message waits for the end of one turn, and
// not for one of each connection.
//
// Nobody waits in line with a lock, or for long: whoever is ahead neither waits for the network nor for a program.
type turn struct {
	bytes int           // moved since it began
	has   bool          // one of the places is its own
	ready chan struct{} // holds a token when it has got one in line
	next  *turn         // behind it in line
}

// line is the one of the process.
var line struct {
	mu          sync.Mutex
	places      int // taken
	first, last *turn
}

var turnPool = sync.Pool{New: func() any {
	t := new(turn)
	t.init()
	return t
}}

func (t *turn) init() { t.ready = make(chan struct{}, 1) }

// spend notes that n bytes have been moved, and returns when the goroutine may go on.
func (t *turn) spend(n int, b *yielder) {
	if t.bytes += n; t.bytes < turnBytes {
		return
	}
	t.bytes = 0
	b.yield()
	if !t.pass() {
		<-t.ready
	}
}

// pass gives the place to who is first in line. It reports whether the goroutine has one.
func (t *turn) pass() bool {
	line.mu.Lock()
	defer line.mu.Unlock()
	switch {
	case t.has && line.first == nil:
		return true
	case t.has:
		t.leave()
	case line.places < runtime.GOMAXPROCS(0):
		line.places++
		t.has = true
		return true
	}
	if line.first == nil {
		line.first = t
	} else {
		line.last.next = t
	}
	line.last = t
	return false
}

// end is called when nothing is left to be done.
func (t *turn) end() {
	t.bytes = 0
	if t.has {
		line.mu.Lock()
		defer line.mu.Unlock()
		t.leave()
	}
}

// leave gives up the place. The caller holds line.mu.
func (t *turn) leave() {
	t.has = false
	next := line.first
	if next == nil {
		line.places--
		return
	}
	line.first, next.next = next.next, nil
	next.has = true
	next.ready <- struct{}{}
}
