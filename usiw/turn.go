// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"runtime"
	"sync"
)

// Implementation constants of turns.
const (
	turnBytes  = 1 << 20 // received or sent in one turn: some 300 us of work
	aloneTurns = 2       // turns before others are let run, while such goroutines are fewer than the processors
)

// A turn is for a goroutine of the NIC whose work may never end, because a peer or a program sends
// without pause. After each turn, or with a processor to spare after aloneTurns, the goroutine lets
// all others run, including those that wait for the network. At most one such goroutine per
// processor works at a time; the others wait in line. So a small message on another connection
// waits for the end of one turn, and not for a turn of each busy connection.
//
// A goroutine in line holds no lock, and it does not wait for long: those before it wait neither
// for the network nor for a program.
type turn struct {
	bytes int           // received or sent since the turn began
	turns int           // since the goroutine let others run
	has   bool          // the goroutine has one of the places
	ready chan struct{} // holds a token when a goroutine in line has got a place
	next  *turn         // the next in line
}

// line is the line of the process.
var line struct {
	mu          sync.Mutex // guards places, first, last, and the fields has and next of turns in line
	places      int        // how many are taken
	first, last *turn
}

var turnPool = sync.Pool{New: func() any {
	t := new(turn)
	t.init()
	return t
}}

func (t *turn) init() { t.ready = make(chan struct{}, 1) }

// spend notes that n bytes have been received or sent, and returns when the goroutine may continue.
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

// crowded reports whether all processors may do such work, with the goroutine itself. If not,
// another processor most likely looks at the network, and letting others run would cost more than
// it brings.
func (t *turn) crowded() bool {
	line.mu.Lock()
	defer line.mu.Unlock()
	busy := line.places
	if !t.has {
		busy++
	}
	return line.first != nil || busy >= runtime.GOMAXPROCS(0)
}

// pass gives the goroutine's place to the first in line, and puts the goroutine at the end. It
// reports whether the goroutine has a place and may continue at once.
func (t *turn) pass() bool {
	line.mu.Lock()
	defer line.mu.Unlock()
	for line.first != nil && line.places < runtime.GOMAXPROCS(0) { // there are more processors than before
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

// callFirst gives a place to who is first in line. The caller holds line.mu.
func callFirst() {
	next := line.first
	line.first, next.next = next.next, nil
	next.has = true
	next.ready <- struct{}{}
}
