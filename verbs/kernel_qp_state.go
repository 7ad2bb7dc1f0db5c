// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

func (q *kernelQP) qpState() QPState { return QPState(q.state.Load()) }

// KnownState implements ProviderQPState.
func (q *kernelQP) KnownState() QPState { return q.qpState() }

// Moved notes where a connection manager has moved the QP.
func (q *kernelQP) Moved(to QPState, reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	switch {
	case q.gone:
	case to == QPStateErr:
		q.failLocked(reason)
	case q.qpState() != QPStateErr:
		q.state.Store(uint32(to))
	}
}

// Modify checks the change against the state diagram and makes it.
func (q *kernelQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.change(&attr, mask)
}

// change is Modify. The caller holds modify.
func (q *kernelQP) change(attr *QPAttr, mask QPAttrMask) error {
	from := q.qpState()
	to := from
	if mask&QPAttrState != 0 {
		to = attr.State
	}
	if err := checkModify(q.typ, q.ctx.dev.info.Transport, from, to, mask); err != nil {
		return err
	}
	if err := checkAttrs(attr, mask, from, q.ctx.attr.PhysPortCnt); err != nil {
		return err
	}
	switch {
	case to == QPStateErr:
		q.failLocked(q.ownEnd(EndModify))
		return nil
	case to == QPStateReset && from != QPStateReset:
		return q.reset()
	}
	if err := q.tell(attr, mask); err != nil {
		return explainModify(err, from, to, mask, attr)
	}
	q.state.Store(uint32(to))
	return nil
}

// tell has the device change the QP.
func (q *kernelQP) tell(attr *QPAttr, mask QPAttrMask) error {
	return callError("ibv_modify_qp", q.c.Modify(flatAttr(attr), uint32(mask)))
}

// explainModify adds what was asked for to an errno that says little.
func explainModify(err error, from, to QPState, mask QPAttrMask, attr *QPAttr) error {
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return fmt.Errorf("%w: %v to %v with %v, which the state diagram allows: one of the values is wrong: %+v", err,
		from, to, mask, *attr)
}

// reset makes the QP as new. What was posted is forgotten, without completions.
func (q *kernelQP) reset() error {
	from := q.state.Swap(uint32(QPStateReset)) // no more posts
	q.barrier()
	if err := q.tell(&QPAttr{State: QPStateReset}, QPAttrState); err != nil {
		q.state.Store(from) // where the device's QP still is
		q.failLocked(err)
		return err
	}
	q.ended, q.initial, q.marked = false, false, 0
	q.marks.Store(0)
	q.why.Store(nil)
	q.vague.Store(nil)
	q.failure.renew()
	return nil
}

// barrier returns when no post is in progress that has seen an older state.
func (q *kernelQP) barrier() {
	for _, l := range q.posts {
		l.Lock()
		//lint:ignore SA2001 the critical section is the posts'
		l.Unlock()
	}
}

// flushLimit is how long a device may take to flush.
const flushLimit = 500 * time.Millisecond

// fail moves the QP to the error state.
func (q *kernelQP) fail(reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone {
		q.failLocked(reason)
	}
}

// ownEnd is the reason if this side ends the QP: nil for a QP that had failed before, whose reason
// is known or still to come.
func (q *kernelQP) ownEnd(reason error) error {
	if q.qpState() == QPStateErr {
		return nil
	}
	return reason
}

func (q *kernelQP) failLocked(reason error) {
	q.because(reason)
	from := QPState(q.state.Swap(uint32(QPStateErr)))
	if q.why.Load() != nil || from != QPStateErr {
		q.tellFailed()
	}
	if q.ended {
		return
	}
	q.ended = true
	q.barrier()
	if from == QPStateReset {
		// The kernel knows no way from RESET to ERR.
		q.initial = true
	} else {
		// One that is in ERR already flushes what has come since; one whose device is gone has
		// nothing to flush.
		_ = q.tell(&QPAttr{State: QPStateErr}, QPAttrState)
	}
}

// signal is a channel that is closed once, until it is renewed.
type signal struct {
	mu    sync.Mutex
	ch    chan struct{} // nil until somebody asks
	fired bool
}

// wait returns the channel.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
		if s.fired {
			close(s.ch)
		}
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fired && s.ch != nil {
		close(s.ch)
	}
	s.fired = true
}

func (s *signal) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fired {
		s.ch, s.fired = nil, false
	}
}

// Failed implements ProviderQPWatcher.
func (q *kernelQP) Failed() <-chan struct{} { return q.failure.wait() }

// Err returns the first reason.
func (q *kernelQP) Err() error {
	for _, p := range []*error{q.why.Load(), q.vague.Load()} {
		if p != nil {
			return *p
		}
	}
	if q.qpState() == QPStateErr {
		return WCWRFlushErr
	}
	return nil
}

// because notes a reason for the error state. A flush is one that says little.
func (q *kernelQP) because(reason error) {
	switch {
	case reason == nil:
	case reason == error(WCWRFlushErr):
		q.vague.CompareAndSwap(nil, &reason)
	default:
		q.why.CompareAndSwap(nil, &reason)
	}
}

// tellDelay is how long some failures are kept from connection managers, which end the connection.
// One that only flushed requests tell: they may learn the reason meanwhile. And one that an event
// tells, which is the fault of a request of the peer's: the refusal must reach the peer before the
// end of the connection does, which would flush the request.
const tellDelay = 200 * time.Millisecond

// tellFailed tells who watches the QP that it has failed.
func (q *kernelQP) tellFailed() {
	if why := q.why.Load(); why != nil {
		if _, event := (*why).(*eventError); !event {
			q.failure.fire()
			return
		}
	}
	time.AfterFunc(tellDelay, func() {
		if q.qpState() == QPStateErr {
			q.failure.fire()
		}
	})
}

// failLater notes the failure that an event tells. The device moves the QP to ERR by itself, and it
// may send the event first and the refusal to the peer after it: a QP that is in ERR by then does
// not send it. So the QP is moved from here only later.
func (q *kernelQP) failLater(reason *eventError) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone {
		return
	}
	q.because(reason)
	q.state.Store(uint32(QPStateErr))
	time.AfterFunc(tellDelay, func() {
		q.modify.Lock()
		defer q.modify.Unlock()
		if why := q.why.Load(); why != nil && *why == error(reason) && !q.gone {
			q.failLocked(reason)
			q.failure.fire()
		}
	})
}

// refused notes an error among the completions, under the lock of their CQ. It reports whether it
// was a mark of a drain.
func (q *kernelQP) refused(wc *WC) (mark bool) {
	switch wc.ID {
	case markID[0]:
		q.marks.Or(markSend)
		return true
	case markID[1]:
		q.marks.Or(markRecv)
		return true
	}
	if q.typ == QPTypeRC {
		q.failedBy(wc.Status)
	}
	return false
}

// failedBy notes the status of a request that has failed. It reports whether the QP was not in ERR
// before.
func (q *kernelQP) failedBy(status WCStatus) (first bool) {
	st := q.qpState()
	if st < QPStateRTR {
		return false
	}
	q.because(status)
	if st == QPStateErr || !q.state.CompareAndSwap(uint32(st), uint32(QPStateErr)) {
		return false
	}
	q.tellFailed()
	return true
}
