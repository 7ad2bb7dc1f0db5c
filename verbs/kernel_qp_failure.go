// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"sync"
	"time"
)

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
