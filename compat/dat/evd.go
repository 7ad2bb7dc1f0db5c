// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// EVD is an event dispatcher: a queue of events of one or several kinds. Completions come from its
// own completion queue. Events of one stream, such as the DTOs of one queue of an EP, are in order;
// events of different streams are not ordered. All methods may be called concurrently, but only one
// goroutine at a time can be in [EVD.Wait], and Dequeue fails in the meantime.
type EVD struct {
	node  lifetime.Node
	ia    *IA
	flags EVDFlags
	qlen  int
	cq    *verbs.CQ // nil without EVDDTO
	room  int       // maximum number of completions moved out of cq

	mu         sync.Mutex // guards the fields below
	awake      sync.Cond  // the waiter has left cq, or may return to it
	events     eventQueue
	others     int            // events other than completions
	loud       uint64         // total number of events that wake a waiter
	feeders    map[uint32]*EP // by the number in the IDs of their requests
	solicited  int            // EPs whose receives wake a waiter only if the sender requests it
	waiter     bool           // a goroutine is in Wait
	asleep     bool           // it waits on cq and may return with completions
	interrupt  context.CancelFunc
	settling   int // goroutines in settle, which keep the waiter out of cq
	unwaitable bool
	freed      bool  // Free was called
	broken     error // the CQ failed or lost completions
	batch      [16]verbs.WC
}

// EVDParam describes an EVD (DAT_EVD_PARAM).
type EVDParam struct {
	IA         *IA
	QLen       int // maximum number of events
	Flags      EVDFlags
	Unwaitable bool
}

// CreateEVD creates an EVD for at least qlen events of the kinds in flags (dat_evd_create). If it
// accepts completions, it needs room for every DTO that can be outstanding on the EPs that feed it.
// The package comment describes what happens otherwise.
func (ia *IA) CreateEVD(qlen int, flags EVDFlags) (*EVD, error) {
	const call = "IA.CreateEVD"
	if err := ia.enter(call); err != nil {
		return nil, err
	}
	defer ia.node.Exit()
	if flags == 0 || flags&^allEVD != 0 {
		return nil, argument(call, InvalidArg4, "flags %v, of %v", flags, allEVD)
	}
	if qlen < 1 {
		return nil, argument(call, InvalidArg2, "room for %d events", qlen)
	}
	return ia.newEVD(call, qlen, flags, &ia.node)
}

func (ia *IA) newEVD(call string, qlen int, flags EVDFlags, parent *lifetime.Node) (*EVD, error) {
	e := &EVD{ia: ia, flags: flags, qlen: qlen, feeders: map[uint32]*EP{}}
	e.awake.L = &e.mu
	if flags&EVDDTO != 0 {
		cq, err := ia.ctx.CreateCQ(verbs.CQConfig{CQE: qlen + markerRoom})
		if err != nil {
			return nil, below(call, ResourceTEVD, err)
		}
		e.cq, e.room = cq, 2*cq.CQE()
	}
	if err := e.node.Init("dat.EVD", e.Free, parent); err != nil {
		return nil, fault(call, InvalidHandle, InvalidHandleIA, errors.Join(err, e.cq.Close()))
	}
	if e.cq != nil {
		ia.noteCQ(e.cq, e)
	}
	return e, nil
}

// markerRoom is the space in a CQ for the markers of graceful disconnects, at most one per EP at
// any time.
const markerRoom = 16

func (e *EVD) enter(call string) error {
	if e == nil || !e.node.Enter() {
		return fault(call, InvalidHandle, InvalidHandle1, lifetime.ErrClosed)
	}
	return nil
}

// Query describes the EVD (dat_evd_query).
func (e *EVD) Query() (EVDParam, error) {
	if err := e.enter("EVD.Query"); err != nil {
		return EVDParam{}, err
	}
	defer e.node.Exit()
	e.mu.Lock()
	defer e.mu.Unlock()
	return EVDParam{IA: e.ia, QLen: e.qlen, Flags: e.flags, Unwaitable: e.unwaitable}, nil
}

// Free destroys the EVD and the events in it (dat_evd_free); a pending Wait returns [Abort]. It is
// idempotent. The error is [InvalidState] with [InvalidStateEVDInUse] while EPs or PSPs use it, and
// with [InvalidStateEVDAsync] for the IA's own EVD.
func (e *EVD) Free() error {
	const call = "EVD.Free"
	if e == nil {
		return fault(call, InvalidHandle, InvalidHandle1, nil)
	}
	if e.flags&EVDAsync != 0 && !e.ia.node.Closed() {
		return fault(call, InvalidState, InvalidStateEVDAsync, nil)
	}
	first, err := e.node.BeginClose()
	if err != nil {
		return fault(call, InvalidState, InvalidStateEVDInUse, err)
	}
	if !first {
		return nil
	}
	e.mu.Lock()
	e.freed = true
	e.mu.Unlock()
	e.kick()
	e.node.Drain(0)
	if e.cq != nil {
		e.ia.noteCQ(e.cq, nil)
		err = e.cq.Close()
	}
	e.node.End()
	return below(call, NoSubtype, err)
}

// SetUnwaitable makes Wait fail, including a pending one, until ClearUnwaitable
// (dat_evd_set_unwaitable).
func (e *EVD) SetUnwaitable() error { return e.setUnwaitable("EVD.SetUnwaitable", true) }

// ClearUnwaitable undoes SetUnwaitable (dat_evd_clear_unwaitable).
func (e *EVD) ClearUnwaitable() error { return e.setUnwaitable("EVD.ClearUnwaitable", false) }

func (e *EVD) setUnwaitable(call string, is bool) error {
	if err := e.enter(call); err != nil {
		return err
	}
	defer e.node.Exit()
	e.mu.Lock()
	e.unwaitable = is
	e.mu.Unlock()
	e.kick()
	return nil
}

// Dequeue removes and returns the oldest event (dat_evd_dequeue). The error is [QueueEmpty] if
// there is none, and [InvalidState] with [InvalidStateEVDWaiter] while a goroutine is in Wait. It
// does not allocate.
func (e *EVD) Dequeue() (Event, error) {
	const call = "EVD.Dequeue"
	if err := e.enter(call); err != nil {
		return Event{}, err
	}
	defer e.node.Exit()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiter {
		return Event{}, fault(call, InvalidState, InvalidStateEVDWaiter, nil)
	}
	if e.events.len() == 0 {
		e.collect()
	}
	if e.events.len() > 0 {
		return e.take(), nil
	}
	if e.broken != nil {
		return Event{}, fault(call, InvalidState, NoSubtype, e.broken)
	}
	return Event{}, errEmpty
}

var errEmpty = fault("EVD.Dequeue", QueueEmpty, NoSubtype, nil)

// take removes and returns the oldest event. The caller holds mu.
func (e *EVD) take() Event {
	ev := e.events.pop()
	if ev.Number != DTOCompletionEvent {
		e.others--
	}
	ev.EVD = e
	return ev
}

// post adds an event that is not a completion. If there is no room, the event is lost, and the
// asynchronous EVD is notified.
func (e *EVD) post(ev Event) (posted bool) {
	e.mu.Lock()
	if posted = e.others < e.qlen; posted {
		e.events.push(ev)
		e.others++
		e.loud++
	}
	e.mu.Unlock()
	if posted {
		e.kick()
	} else {
		e.ia.asyncError(Event{Number: AsyncEVDOverflow, Async: AsyncError{EVD: e}})
	}
	return posted
}

// kick wakes the waiter, which then checks again.
func (e *EVD) kick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.interrupt != nil {
		e.interrupt()
	}
}

// collect moves completions from the CQ to the events. All of them wake a waiter, even on a
// solicited EVD: a completion does not say whether it is solicited, and WaitSolicited does not
// return for one that has left the CQ. The caller holds mu, and no waiter may be holding
// completions.
func (e *EVD) collect() {
	if e.cq == nil || e.asleep {
		return
	}
	for e.events.len() < e.room {
		n, err := e.cq.Poll(e.batch[:])
		e.completed(e.batch[:n])
		if err != nil {
			e.lost(err)
		}
		if n < len(e.batch) || err != nil {
			return
		}
	}
}

func (e *EVD) lost(err error) {
	if e.broken == nil {
		e.broken = err
	}
}

// settle moves the completions that have arrived so far to the events, including those that a
// waiter holds.
func (e *EVD) settle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settling++
	for e.asleep {
		e.interrupt()
		e.awake.Wait()
	}
	e.collect()
	e.settling--
	e.awake.Broadcast()
}

// completed converts completions to events. The caller holds mu.
func (e *EVD) completed(wcs []verbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		ep := e.feeders[uint32(wc.ID>>32)]
		if ep == nil {
			continue // of an EP that was reset
		}
		ev := Event{Number: DTOCompletionEvent}
		quiet, visible := ep.completed(wc, &ev.DTO)
		if !visible {
			continue
		}
		e.events.push(ev)
		if ev.DTO.Status != DTOSuccess || !quiet {
			e.loud++
		}
	}
}

// feed starts or stops delivering the completions of ep, identified by number, to this EVD.
func (e *EVD) feed(number uint32, ep *EP, solicited bool, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change := 1
	if on {
		e.feeders[number] = ep
	} else {
		delete(e.feeders, number)
		change = -1
	}
	if solicited {
		e.solicited += change
	}
}

// eventQueue is a FIFO of events. It allocates only to grow.
type eventQueue struct {
	ring    []Event
	head, n int
}

func (q *eventQueue) len() int { return q.n }

func (q *eventQueue) push(ev Event) {
	if q.n == len(q.ring) {
		ring := make([]Event, max(16, 2*q.n))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = ev
	q.n++
}

func (q *eventQueue) pop() Event {
	ev := q.ring[q.head]
	q.ring[q.head] = Event{}
	q.head, q.n = (q.head+1)%len(q.ring), q.n-1
	return ev
}
