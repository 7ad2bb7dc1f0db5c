// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "sync"

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

// SetDepths implements ProviderQPLimiter.
func (q *kernelQP) SetDepths(ord, _ int) { q.ord.Store(int32(ord)) }

// unknownORD is the depth of a QP that nobody has told.
const unknownORD = -1

// needsORD reports whether a request takes up a place among the Reads in progress.
func needsORD(op WROpcode) bool {
	switch op {
	case WRRDMARead, WRAtomicCmpAndSwp, WRAtomicFetchAndAdd:
		return true
	}
	return false
}
