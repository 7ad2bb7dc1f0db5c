// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/queue"
)

// A watch decides which goroutine wakes when data arrive. It covers one connection, or every
// connection that shares a CQ with it, directly or through others (watches.go). The goroutine that
// keeps the watch receives for all of them.
//
// A wake-up by the kernel costs one or two system calls. Waking another goroutine costs about as
// much again and usually needs a second thread. The goroutine that waits for a completion therefore
// keeps the watch itself, and while a program polls continuously, no goroutine is woken. But a
// request from the peer, or a message for another goroutine, must not wait while the goroutine that
// keeps the watch is busy elsewhere. Each arrival that had to wait adds 1,024 to a debt, and each
// one that did not subtracts 1; while the debt is positive, the reader keeps the watch.
// docs/architecture.md has the transition table.
type watch struct {
	src  source
	now  func() int64  // clock
	term time.Duration // leaseTime
	back chan struct{} // holds a token when a reader standing aside must check whether to return

	events atomic.Uint64 // completion events of the CQs for which a goroutine was asleep
	armed  atomic.Int32  // number of armed CQs
	// the debt in arrivals, negative for credit; while it is positive, the reader keeps the watch;
	// changes under mu
	doubt atomic.Int64
	over  atomic.Bool   // the watch has ended; set under mu
	ended chan struct{} // closed when the reader returns

	// The poller or waiter.
	left      atomic.Int64  // when it was last present
	present   atomic.Bool   // it has been present since the lease began
	polls     atomic.Uint32 // polls since startBusyPoll last counted them
	late      atomic.Bool   // it was away for longer than absence and has not yet received everything that waited
	announced atomic.Bool   // keeper is not byPoller

	turn turn    // the reader's
	out  waiting // the waiter's

	mu     sync.Mutex // guards the fields below and the calls of src.quiet
	keeper keeper
	aside  bool     // the reader is standing aside
	wanted *channel // where a goroutine sleeps that could replace the reader as keeper; nil if none
	lease  *time.Timer
	since  int64 // when startBusyPoll last counted polls

	// Guarded by device.watching.
	conns map[*conn]struct{}
	cqs   map[*cq]struct{}
}

// keeper identifies the goroutine that keeps the watch.
type keeper uint8

const (
	byReader keeper = iota // the NIC's goroutine for this watch
	byWaiter               // a goroutine of the program that sleeps in CQ.Wait or CompChannel.Wait
	byNobody               // a waiter was just woken and will most likely be back soon
	byPoller               // the program polls continuously
)

// Limits and periods of watches.
const (
	absence = 25 * time.Microsecond // how long the poller or waiter may be away while a request waits
	// one of this many arrivals may wait longer, few enough not to affect the 99th percentile
	trust     = 1024
	credit    = 2 * trust        // the most credit for returning in time
	leaseTime = time.Millisecond // a poller or waiter that is away for one to two times this long loses the watch

	// The poller keeps the watch after busyPolls polls of an empty CQ within busyPeriod.
	busyPolls  = 64
	busyPeriod = time.Millisecond
)

// source is the connection, or the set of connections, that a watch covers.
type source interface {
	// wait calls f at once, and again whenever data may have arrived, until f returns true. It
	// returns an error once no more data can arrive.
	wait(f func() (done bool)) error
	// wake makes wait call f soon.
	wake()
	// quiet(true) stops wait from calling f for arriving data, except for very large amounts;
	// quiet(false) resumes the calls. It reports false if it fails.
	quiet(on bool) bool
	// take receives a limited amount of the data that have arrived. Everything has been received
	// once it returns no connections and more is false.
	take() (a arrivals, more bool)
	// poll is like take, but skips connections for which another goroutine is receiving.
	poll() arrivals
	// yielder returns the NIC's yielder.
	yielder() *yielder
	// close closes the source's descriptors. wait has returned, or returns because of it.
	close()
}

// arrivals reports what a take or poll received.
type arrivals struct {
	conns int // connections on which data have arrived
	// of these, the connections with a request that the NIC handles without the program: a Read, an
	// atomic, or a Write without a message after it
	asked int
	bytes int  // bytes received
	rest  bool // there may be further connections with data
}

func (a *arrivals) add(b arrivals) {
	a.conns += b.conns
	a.asked += b.asked
	a.bytes += b.bytes
	a.rest = a.rest || b.rest
}

// owed returns how many of the arrivals should not have waited for the poller or waiter: those with
// requests, and at least one if another goroutine was woken.
func (a *arrivals) owed(woken bool) int {
	if woken {
		return max(a.asked, 1)
	}
	return a.asked
}

func newWatch(src source) *watch {
	w := &watch{src: src, now: clock, term: leaseTime, back: make(chan struct{}, 1), ended: make(chan struct{}),
		conns: make(map[*conn]struct{}), cqs: make(map[*cq]struct{})}
	w.out.f, w.out.wake = w.look, w.nudge
	w.turn.init()
	w.out.turn.init()
	w.announced.Store(true)
	return w
}

// read is the reader. It receives while it keeps the watch, and stands aside otherwise, until the
// watch ends.
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
			// Most likely no data are left, but only another attempt can show it. If a goroutine
			// was woken, let it run first; otherwise a yield would only wake another thread.
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

// standAside returns when the reader must keep the watch again, or when the watch ends.
func (w *watch) standAside() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.aside && !w.over.Load() {
		w.mu.Unlock()
		<-w.back
		w.mu.Lock()
	}
}

// The reader calls stepAside after it has woken a goroutine. stepAside reports whether the reader
// must stand aside for it.
func (w *watch) stepAside() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ch := w.wanted
	if ch == nil || w.keeper != byReader || w.doubt.Load() > 0 || w.over.Load() || w.relied(ch) ||
		!ch.soleSleeperCalled() {
		return false
	}
	w.aside = true
	w.vacate()
	return true
}

// relied reports whether goroutines that sleep, or are about to sleep, outside of ch may depend on
// the watch, which is so if CQs of other channels are armed.
func (w *watch) relied(ch *channel) bool { return w.armed.Load() > ch.armed.Load() }

// vacate sets the keeper to byNobody for the duration of a lease. The caller holds mu.
func (w *watch) vacate() {
	w.keeper, w.wanted = byNobody, nil
	w.left.Store(w.now())
	w.startLease()
}

// enter is called by a goroutine that is about to sleep in ch. If it returns true, the caller keeps
// the watch and must call leave.
func (w *watch) enter(ch *channel) bool {
	w.mu.Lock()
	switch {
	case w.over.Load():
	case w.keeper == byPoller && w.aside && !ch.crowded(): // ch supports only one goroutine that keeps a watch
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

// leave reverses enter.
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
	// These checks cover the goroutines that are asleep or have armed a CQ by now; one that does so
	// later calls enter or recall.
	if w.relied(ch) || ch.crowded() {
		w.recall()
	}
}

// recall makes the reader the keeper if nobody or a poller is.
func (w *watch) recall() {
	w.mu.Lock()
	wasQuiet := w.recallLocked()
	w.mu.Unlock()
	if wasQuiet { // data that arrived meanwhile may never be announced
		w.src.take()
	}
}

// recallLocked is recall for a caller that holds mu. It reports whether src was quiet.
func (w *watch) recallLocked() (wasQuiet bool) {
	if w.keeper == byReader || w.keeper == byWaiter {
		return false
	}
	if wasQuiet = w.keeper == byPoller; wasQuiet {
		w.src.quiet(false)
	}
	w.announced.Store(true)
	w.keeper, w.aside = byReader, false
	queue.Signal(w.back)
	return wasQuiet
}

// startLease begins a lease, at the end of which expire is called. It replaces a lease that has not
// ended yet, so the timer does not disturb a program that always returns in time. The caller holds
// mu.
func (w *watch) startLease() {
	w.present.Store(false)
	if w.lease == nil {
		w.lease = time.AfterFunc(w.term, w.expire)
	} else {
		w.lease.Reset(w.term)
	}
}

// expire makes the reader the keeper if no poller or waiter has been present since the lease began.
func (w *watch) expire() {
	w.mu.Lock()
	if w.over.Load() || w.keeper == byReader || w.keeper == byWaiter {
		w.mu.Unlock()
		return
	}
	if w.present.Load() {
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

// stop ends the watch. The reader and the waiter leave soon.
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
	queue.Signal(w.back)
	w.src.wake()
}

// poll receives for a goroutine that polled a CQ at the time now and found it empty.
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
	if late = late && a.rest; late != w.late.Load() { // some of the data that waited have not been received yet
		w.late.Store(late)
	}
	w.here(now)
	if w.announced.Load() && w.polls.Add(1) >= busyPolls {
		w.startBusyPoll(now)
	}
	return a.conns
}

// startBusyPoll sets the keeper to byPoller if the polls were frequent.
func (w *watch) startBusyPoll(now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.polls.Store(0)
	often := now-w.since < int64(busyPeriod)
	w.since = now
	if !often || w.doubt.Load() > 0 || w.over.Load() || w.keeper != byReader && w.keeper != byNobody ||
		!w.src.quiet(true) {
		return
	}
	w.keeper = byPoller
	w.announced.Store(false)
	w.startLease()
}

// here records that the poller or waiter is present at the time now.
func (w *watch) here(now int64) {
	w.left.Store(now)
	if !w.present.Load() {
		w.present.Store(true)
	}
}

// away reports whether the poller or waiter, back at the time now, was away for longer than
// absence.
func (w *watch) away(now int64) bool { return now-w.left.Load() > int64(absence) }

// alone reports whether arriving data wake no goroutine.
func (w *watch) alone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keeper == byPoller || w.keeper == byNobody
}

// distrust adds to the debt for n arrivals that should not have waited for the poller or waiter but
// did. If the debt is then positive, the reader keeps the watch.
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

// arrived reduces the debt by n arrivals that did not have to wait.
func (w *watch) arrived(n int) {
	if n == 0 || w.doubt.Load() == -credit {
		return
	}
	w.mu.Lock()
	w.doubt.Store(max(w.doubt.Load()-int64(n), -credit))
	w.mu.Unlock()
}

// clock returns the time in nanoseconds since epoch, for comparisons.
func clock() int64 { return int64(time.Since(epoch)) }

var epoch = time.Now()
