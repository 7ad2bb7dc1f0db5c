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

// Moved records a state to which a connection manager has moved the QP.
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

// Modify checks the change against the state diagram and applies it.
func (q *kernelQP) Modify(attr QPAttr, mask QPAttrMask) error {
	q.modify.Lock()
	defer q.modify.Unlock()
	return q.change(&attr, mask)
}

// change implements Modify. The caller holds modify.
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

// tell changes the QP on the device.
func (q *kernelQP) tell(attr *QPAttr, mask QPAttrMask) error {
	return callError("ibv_modify_qp", q.c.Modify(flatAttr(attr), uint32(mask)))
}

// explainModify adds the requested change to an EINVAL, which by itself says little.
func explainModify(err error, from, to QPState, mask QPAttrMask, attr *QPAttr) error {
	if !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return fmt.Errorf("%w: %v to %v with %v, which the state diagram allows: one of the values is wrong: %+v", err,
		from, to, mask, *attr)
}

// reset moves the QP to RESET. Posted requests are discarded, without completions.
func (q *kernelQP) reset() error {
	from := q.state.Swap(uint32(QPStateReset)) // no more posts
	q.barrier()
	if err := q.tell(&QPAttr{State: QPStateReset}, QPAttrState); err != nil {
		q.state.Store(from) // the device's QP is still in this state
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

// barrier waits until no post that saw an earlier state is in progress.
func (q *kernelQP) barrier() {
	for _, l := range q.posts {
		l.Lock()
		//lint:ignore SA2001 the critical section is the posts'
		l.Unlock()
	}
}

// flushLimit bounds the time that a device may take to flush.
const flushLimit = 500 * time.Millisecond

// fail moves the QP to ERR.
func (q *kernelQP) fail(reason error) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone {
		q.failLocked(reason)
	}
}

// ownEnd returns the reason for a failure caused by this side: nil for a QP already in ERR, whose
// reason is known or still to come.
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
		// The kernel has no transition from RESET to ERR.
		q.initial = true
	} else {
		// A QP already in ERR flushes what has been posted since. One whose device is gone has
		// nothing to flush.
		_ = q.tell(&QPAttr{State: QPStateErr}, QPAttrState)
	}
}

// signal is a channel that is closed once, until it is renewed.
type signal struct {
	mu    sync.Mutex
	ch    chan struct{} // nil until wait is called
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

// Err returns the first reason for the failure.
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

// because records a reason for ERR. A flush error is a vague reason.
func (q *kernelQP) because(reason error) {
	switch {
	case reason == nil:
	case reason == error(WCWRFlushErr):
		q.vague.CompareAndSwap(nil, &reason)
	default:
		q.why.CompareAndSwap(nil, &reason)
	}
}

// tellDelay delays the report of some failures to connection managers, which then close the
// connection. It applies to a failure known only from flushed requests, so that the reason can
// still arrive. It also applies to a failure known from an event, which is the fault of a request
// of the peer: the refusal must reach the peer before the end of the connection, which would flush
// the request.
const tellDelay = 200 * time.Millisecond

// tellFailed notifies whoever watches the QP that it has failed.
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

// failLater records a failure reported by an event. The device moves the QP to ERR itself, but it
// may raise the event before it sends the refusal to the peer, and it does not send the refusal
// once the QP is in ERR. The QP is therefore moved from here only after a delay.
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

// refused handles a failed completion, with the lock of its CQ held. It reports whether the
// completion is a mark of a drain.
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

// failedBy records the status of a failed request. It reports whether this moved the QP to ERR.
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
