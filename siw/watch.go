// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A watch answers one question: who is woken when something arrives. It is kept over one connection, or over all those that
// are tied to each other by common CQs (watches.go). Whoever keeps it receives for all of them.
//
// To be woken by the kernel costs a system call or two, and to wake somebody else about as much again and mostly a second
// thread. So the goroutine that waits for a completion keeps the watch itself, and while a program polls without pause nobody
// is woken at all. But what a peer asks for must not wait for a program that does other things: whenever a Read, an atomic or a
// Write had to wait for one that was away, the reader keeps the watch for the next 128 things that arrive. docs/architecture.md has
// the table of transitions.
type watch struct {
	src  source
	now  func() int64  // clock
	term time.Duration // leaseTime
	back chan struct{} // holds a token when the reader, which stands aside, has to look

	events atomic.Uint64 // completion events of the CQs that have woken somebody
	armed  atomic.Int32  // CQs that are armed
	doubt  atomic.Int64  // above 0: how many things have to arrive before a guest is trusted again; changes under mu
	over   atomic.Bool   // it is not kept any more; set under mu
	ended  chan struct{} // closed when the reader is gone

	// Of polls.
	left      atomic.Int64  // when the guest, a poller or waiter, was last here
	present   atomic.Bool   // one has been here since the lease began
	polls     atomic.Uint32 // empty ones since the last look at them
	late      atomic.Bool   // the guest was away for long, and has not received all that waited
	announced atomic.Bool   // keeper is not byPoller

	turn turn    // the reader's
	out  waiting // what the waiter works with

	mu     sync.Mutex // guards what follows and the calls of src.quiet; nothing is locked below it
	keeper keeper
	aside  bool     // the reader stands aside
	wanted *channel // a goroutine that sleeps there would rather keep the watch itself; nil if none would
	leased bool     // the lease runs
	lease  *time.Timer
	since  int64 // of the last look at polls

	// Guarded by device.watching.
	conns map[*conn]struct{}
	cqs   map[*cq]struct{}
}

// keeper is who is woken.
type keeper uint8

const (
	byReader keeper = iota // the watch's own goroutine
	byWaiter               // a goroutine that sleeps in CQ.Wait or CompChannel.Wait
	byNobody               // a waiter has just left, and will most likely be back soon
	byPoller               // it is polled without pause
)

// Implementation constants of watches.
const (
	absence   = 25 * time.Microsecond // so long a guest may be away, and what arrives wait for it
	trust     = 128                   // of so many things that arrive, one may wait longer
	credit    = 2 * trust             // so much doubt below 0 a guest gets by being here in time
	leaseTime = time.Millisecond      // a guest that has not been here for so long, or twice as long, is gone

	// The poller keeps the watch after busyPolls polls in vain within busyPeriod.
	busyPolls  = 64
	busyPeriod = time.Millisecond
)

// source is what a watch is kept over.
type source interface {
	// wait calls f, and again whenever something may have arrived, until f reports that it is done. It returns an error if
	// nothing will ever arrive.
	wait(f func() (done bool)) error
	// wake has wait call f soon.
	wake()
	// quiet has wait call f no more, or again. It reports false if that cannot be done.
	quiet(on bool) bool
	// take receives what has arrived, with a bound. There may be more until it returns nothing without more.
	take() (a arrivals, more bool)
	// poll is take, but leaves out connections for which somebody receives at the moment.
	poll() arrivals
	// yielder is the NIC's.
	yielder() *yielder
	// close lets go of descriptors. wait has returned or returns.
	close()
}

// arrivals count connections.
type arrivals struct {
	conns int  // on which something has arrived
	asked int  // on which the peer has asked for something that does not concern the program: a Read, an atomic, or a Write alone
	bytes int  // that have been received
	rest  bool // there may be connections that were left out
}

func (a *arrivals) add(b arrivals) {
	a.conns += b.conns
	a.asked += b.asked
	a.bytes += b.bytes
	a.rest = a.rest || b.rest
}

// owed is how many of them must not wait for a guest; one at least was for another goroutine if that has been woken.
func (a *arrivals) owed(woken bool) int {
	if woken {
		return max(a.asked, 1)
	}
	return a.asked
}

func newWatch(src source) *watch {
	w := &watch{src: src, now: clock, term: leaseTime, back: make(chan struct{}, 1), ended: make(chan struct{}), conns: make(map[*conn]struct{}), cqs: make(map[*cq]struct{})}
	w.out.f = w.look
	w.turn.init()
	w.out.turn.init()
	w.announced.Store(true)
	return w
}

// read receives whenever the reader keeps the watch, until it is over.
func (w *watch) read() error {
	defer close(w.ended)
	defer w.src.close()
	turn := func() bool {
		defer w.turn.end()
		for seen := w.events.Load(); !w.over.Load(); {
			a, more := w.src.take()
			w.arrived(a.conns)
			if a.conns == 0 && !more {
				return w.over.Load()
			}
			w.turn.spend(a.bytes, w.src.yielder())
			// Nothing is left, most likely, but only another attempt tells. Whom we woke, if we did, goes first; to stand back
			// for nobody would only wake another thread.
			if now := w.events.Load(); now != seen {
				seen = now
				if w.stepAside() {
					return true
				}
				runtime.Gosched()
			}
		}
		return true
	}
	for !w.over.Load() {
		if err := w.src.wait(turn); err != nil && !w.over.Load() {
			return err
		}
		w.standAside()
	}
	return nil
}

// standAside returns when the reader has to keep the watch, or it is over.
func (w *watch) standAside() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.aside && !w.over.Load() {
		w.mu.Unlock()
		<-w.back
		w.mu.Lock()
	}
}

// stepAside is called by the reader when it has woken somebody. It reports whether the reader has to stand aside.
func (w *watch) stepAside() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := w.wanted
	if ch == nil || w.keeper != byReader || w.doubt.Load() > 0 || w.over.Load() || w.relied(ch) || !ch.soleSleeperCalled() {
		return false
	}
	w.aside = true
	w.vacate()
	return true
}

// relied reports whether others may sleep, or be about to, than one goroutine in ch.
func (w *watch) relied(ch *channel) bool { return w.armed.Load() > ch.armed.Load() }

// vacate leaves the watch to nobody, for the time of a lease. The caller holds mu.
func (w *watch) vacate() {
	w.keeper, w.wanted = byNobody, nil
	w.here(w.now())
	w.startLease()
}

// enter makes the caller, who is about to sleep in ch, the keeper. If it reports true, leave must follow.
func (w *watch) enter(ch *channel) bool {
	w.mu.Lock()
	switch {
	case w.over.Load():
	case w.keeper == byPoller && w.aside && !ch.crowded(): // ch knows one goroutine that keeps a watch
		w.src.quiet(false)
		w.announced.Store(true)
		fallthrough
	case w.keeper == byNobody && !ch.crowded():
		w.keeper = byWaiter
		w.late.Store(w.away(w.now()))
		w.mu.Unlock()
		return true
	case w.keeper != byWaiter:
		w.wanted = ch
		if w.recallLocked() {
			w.mu.Unlock()
			w.src.take()
			return false
		}
	}
	w.mu.Unlock()
	return false
}

// leave ends what enter began.
func (w *watch) leave(ch *channel) {
	w.mu.Lock()
	switch {
	case w.over.Load():
		w.keeper = byReader
		w.out.unfollow()
	case w.doubt.Load() > 0:
		w.keeper = byNobody
		w.recallLocked()
	default:
		w.vacate()
	}
	w.mu.Unlock()
	// Who sleeps, or has armed a CQ in order to, is seen here; who does it from now on calls enter or recall.
	if w.relied(ch) || ch.crowded() {
		w.recall()
	}
}

// recall makes the reader the keeper, in place of nobody or a poller.
func (w *watch) recall() {
	w.mu.Lock()
	wasQuiet := w.recallLocked()
	w.mu.Unlock()
	if wasQuiet { // what came in the quiet need not be announced again
		w.src.take()
	}
}

// recallLocked is recall for a caller that holds mu. It reports whether src was quiet.
func (w *watch) recallLocked() (wasQuiet bool) {
	if w.keeper == byReader || w.keeper == byWaiter {
		return false
	}
	if wasQuiet = w.keeper == byPoller; wasQuiet && !w.over.Load() {
		w.src.quiet(false)
	}
	w.announced.Store(true)
	w.keeper, w.aside = byReader, false
	signal(w.back)
	return wasQuiet
}

// startLease has expire called. The caller holds mu.
func (w *watch) startLease() {
	if w.leased || w.over.Load() {
		return
	}
	w.leased = true
	if w.lease == nil {
		w.lease = time.AfterFunc(w.term, w.expire)
	} else {
		w.lease.Reset(w.term)
	}
}

// expire makes the reader the keeper if no guest has been here for the time of a lease.
func (w *watch) expire() {
	w.mu.Lock()
	w.leased = false
	if w.over.Load() || w.keeper == byReader || w.keeper == byWaiter {
		w.mu.Unlock()
		return
	}
	if w.present.Swap(false) {
		w.startLease()
		w.mu.Unlock()
		return
	}
	w.recallLocked()
	w.mu.Unlock()
	events := w.events.Load()
	a, _ := w.src.take()
	if owed := a.owed(w.events.Load() != events); owed > 0 {
		w.distrust(owed)
	}
}

// stop ends the watch. The reader goes soon, and so does who sleeps in its place.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over.Load() {
		return
	}
	w.recallLocked()
	w.over.Store(true)
	if w.keeper != byWaiter {
		w.out.unfollow()
	}
	if w.lease != nil {
		w.lease.Stop()
	}
	signal(w.back)
	w.src.wake()
}

// poll receives for who polls a CQ at the time now, and has found it empty.
func (w *watch) poll(now int64) int {
	late, events := w.away(now) || w.late.Load(), w.events.Load()
	a := w.src.poll()
	if a.conns > 0 {
		if owed := a.owed(w.events.Load() != events); late && owed > 0 && w.alone() {
			w.distrust(owed)
		} else {
			w.arrived(a.conns)
		}
		now = w.now()
	}
	if late = late && a.rest; late != w.late.Load() { // what waited is not all received yet
		w.late.Store(late)
	}
	w.here(now)
	if w.announced.Load() && w.polls.Add(1) >= busyPolls {
		w.startBusyPoll(now)
	}
	return a.conns
}

// startBusyPoll leaves the watch to who polls, if that is often.
func (w *watch) startBusyPoll(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls.Store(0)
	often := now-w.since < int64(busyPeriod)
	w.since = now
	if !often || w.doubt.Load() > 0 || w.over.Load() || w.keeper != byReader && w.keeper != byNobody || !w.src.quiet(true) {
		return
	}
	w.keeper = byPoller
	w.announced.Store(false)
	w.startLease()
}

// here notes that a guest is.
func (w *watch) here(now int64) {
	w.left.Store(now)
	if !w.present.Load() {
		w.present.Store(true)
	}
}

// away reports whether the guest that comes now was away for long.
func (w *watch) away(now int64) bool { return now-w.left.Load() > int64(absence) }

// alone reports whether nobody is woken.
func (w *watch) alone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keeper == byPoller || w.keeper == byNobody
}

// distrust notes that n things had to wait for a guest. If that is too often, the reader keeps the watch.
func (w *watch) distrust(n int) {
	w.mu.Lock()
	wasQuiet := false
	if w.doubt.Add(int64(n)*trust) > 0 {
		wasQuiet = w.recallLocked()
	}
	w.mu.Unlock()
	if wasQuiet {
		w.src.take()
	}
}

// arrived notes that n things have arrived and did not have to wait.
func (w *watch) arrived(n int) {
	if n == 0 || w.doubt.Load() == -credit {
		return
	}
	w.mu.Lock()
	w.doubt.Store(max(w.doubt.Load()-int64(n), -credit))
	w.mu.Unlock()
}

// clock is the time for comparisons.
func clock() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()
