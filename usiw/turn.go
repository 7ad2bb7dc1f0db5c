// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"runtime"
	"sync"
)

// Limits of turns.
const (
	turnBytes  = 1 << 20 // received or sent in one turn: about 300 us of work
	aloneTurns = 2       // turns before a yield, while fewer such goroutines run than there are processors
)

// A turn limits a goroutine of the NIC whose work may never end, because a peer or a program sends
// without pause. After each turn, or after aloneTurns of them while a processor is idle, the
// goroutine yields to all others, including those that wait for the network. At most one such
// goroutine per processor runs at once; the others wait in line. A small message on another
// connection therefore waits for the end of a single turn, rather than for one turn of every busy
// connection.
//
// A goroutine in line holds no lock, and does not wait long: those ahead of it wait neither for the
// network nor for a program.
type turn struct {
	bytes int           // received or sent since the turn began
	turns int           // since the goroutine last yielded
	has   bool          // the goroutine holds one of the places
	ready chan struct{} // holds a token once a goroutine in line has been given a place
	next  *turn         // the next in line
}

// line is the process-wide line.
var line struct {
	mu          sync.Mutex // guards places, first, last, and the fields has and next of turns in line
	places      int        // number of places taken
	first, last *turn
}

var turnPool = sync.Pool{New: func() any {
	t := new(turn)
	t.init()
	return t
}}

func (t *turn) init() { t.ready = make(chan struct{}, 1) }

// spend records that n bytes were received or sent, and returns when the goroutine may continue.
func (t *turn) spend(n int, b *yielder) {
	if t.bytes += n; t.bytes < turnBytes {
		return
	}
	t.bytes = 0
	if t.turns++; t.turns < aloneTurns && !t.crowded() {
		return
	}
	t.turns = 0
	b.yield()
	if !t.pass() {
		<-t.ready
	}
}

// crowded reports whether all processors may be doing such work, counting this goroutine. If not,
// another processor is probably polling the network, and yielding would cost more than it gains.
func (t *turn) crowded() bool {
	line.mu.Lock()
	defer line.mu.Unlock()
	busy := line.places
	if !t.has {
		busy++
	}
	return line.first != nil || busy >= runtime.GOMAXPROCS(0)
}

// pass hands the goroutine's place to the first in line, and puts the goroutine at the end. It
// reports true if the goroutine has a place and may continue at once.
func (t *turn) pass() bool {
	line.mu.Lock()
	defer line.mu.Unlock()
	for line.first != nil && line.places < runtime.GOMAXPROCS(0) { // the number of processors has grown
		line.places++
		callFirst()
	}
	switch {
	case t.has && line.first == nil && line.places <= runtime.GOMAXPROCS(0):
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

// end is called when the goroutine has no more work.
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
	if line.first == nil || line.places > runtime.GOMAXPROCS(0) {
		line.places--
		return
	}
	callFirst()
}

// callFirst gives a place to the first in line. The caller holds line.mu.
func callFirst() {
	next := line.first
	line.first, next.next = next.next, nil
	next.has = true
	next.ready <- struct{}{}
}
