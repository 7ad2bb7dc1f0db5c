// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"sync"
	"time"
)

// The runtime's poller wakes one goroutine for what arrives on a connection, its lookout. If that is always the connection's
// reader, which wakes whoever waits for the completion, each message takes two goroutines, and mostly a second thread. So
// a goroutine that sleeps in CQ.Wait, on a CQ of no other connection, becomes the lookout itself: it receives, and returns
// with its completion.
//
//	reader -> nobody   the reader has woken a waiter that would rather be the lookout itself
//	nobody -> waiter   in CQ.Wait
//	waiter -> nobody   it has its completion, and will most likely be back soon
//	nobody -> reader   nobody has been back for a while, or somebody sleeps who cannot be the lookout
//
// Nobody sleeps while nobody is the lookout: who leaves looks for CQs that are armed, and who arms one recalls the reader.
type lookoutHolder uint8

const (
	lookoutReader lookoutHolder = iota
	lookoutNobody
	lookoutWaiter
)

// Implementation constants of the lookout. Nobody is it for lookoutLease, or up to twice as long, before the reader is again:
// what the peer asks for meanwhile is answered later by that. So that this does not happen again and again to a program that
// does other things between its waits, the next lookoutRefused of them then do without.
const (
	lookoutLease   = time.Millisecond
	lookoutRefused = 64
)

// lookout says who is woken for what arrives on a connection.
type lookout struct {
	stream waker         // nil if it is always the reader
	back   chan struct{} // holds a token when the reader, which stands aside, has to look at holder

	mu      sync.Mutex // guards what follows; nothing is locked below it
	holder  lookoutHolder
	wanted  bool // a waiter would rather be it
	used    bool // a waiter has been it since the lease began
	timing  bool // the lease runs
	over    bool // the connection has ended
	refused int  // how many waits must do without
	timer   *time.Timer
}

// takeLookout makes the caller, who is about to sleep in CQ.Wait, the lookout. If it reports true, leaveLookout must follow.
func (c *conn) takeLookout() bool {
	l := &c.lookout
	if l.stream == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over, c.dead.Load(), l.holder == lookoutWaiter:
		return false
	case l.refused > 0:
		l.refused--
		return false
	case l.holder == lookoutReader:
		l.wanted = true
		return false
	}
	l.holder = lookoutWaiter
	c.workers.Add(1) // never the first: the reader stands aside
	return true
}

// leaveLookout ends what takeLookout began.
func (c *conn) leaveLookout() {
	c.vacateLookout()
	c.workers.Done()
}

// vacateLookout leaves nobody as the lookout, for the time of a lease, unless somebody sleeps.
func (c *conn) vacateLookout() {
	l := &c.lookout
	l.mu.Lock()
	l.holder, l.used, l.wanted = lookoutNobody, true, false
	if !l.timing && !l.over {
		l.timing = true
		if l.timer == nil {
			l.timer = time.AfterFunc(lookoutLease, c.endLease)
		} else {
			l.timer.Reset(lookoutLease)
		}
	}
	l.mu.Unlock()
	// Who has armed a CQ before now is seen here; who does from now on calls recallLookout.
	if c.q.sendCQ.isArmed() || c.q.recvCQ.isArmed() {
		c.recallLookout()
	}
}

// endLease makes the reader the lookout if nobody has been back.
func (c *conn) endLease() {
	l := &c.lookout
	l.mu.Lock()
	l.timing = l.holder == lookoutNobody && l.used && !l.over
	l.used = false
	if l.timing {
		l.timer.Reset(lookoutLease)
	}
	again := l.timing
	l.mu.Unlock()
	if !again {
		c.recallLookout()
	}
}

// recallLookout makes the reader the lookout if nobody is.
func (c *conn) recallLookout() {
	l := &c.lookout
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder == lookoutNobody {
		l.holder, l.refused = lookoutReader, lookoutRefused
		signal(l.back)
	}
}

// yieldLookout is called by the reader when it has woken somebody. It reports whether the reader has to stand aside.
func (c *conn) yieldLookout() bool {
	l := &c.lookout
	l.mu.Lock()
	wanted := l.wanted && !l.over
	l.mu.Unlock()
	if wanted {
		c.vacateLookout()
	}
	return wanted
}

// standAside returns when the reader is the lookout, or the connection has ended.
func (c *conn) standAside() {
	l := &c.lookout
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.holder != lookoutReader && !l.over {
		l.mu.Unlock()
		<-l.back
		l.mu.Lock()
	}
}

// stop ends it for good.
func (l *lookout) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.timer != nil {
		l.timer.Stop()
	}
	signal(l.back)
}
