// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"container/list"
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Limits on the connections that a listener sets up concurrently. A setup occupies memory for its
// connection, and a peer can delay it for several seconds. Each address may have a few in progress;
// its further requests wait for them, and beyond a limit they are refused. Other addresses are not
// affected. A slow setup does not block others from the same address, which may come from other
// programs behind a NAT. If there are too many in total, the oldest one is abandoned.
const (
	mostSetups    = 1024 // in progress
	mostSetupsOf  = 64   // of one address, and younger than setupYoung
	mostWaitingOf = 1024 // requests of one address, in progress or waiting

	// setupYoung limits an address whose peers stay silent to 256 new setups per second, since each
	// of them costs time too.
	setupYoung = 250 * time.Millisecond
	setupOld   = 500 * time.Millisecond // the age at which a setup may be abandoned
)

// setups tracks the requests that a listener is answering.
type setups struct {
	places chan struct{} // holds one element for each setup in progress

	mu     sync.Mutex // guards the fields below
	of     map[netip.Addr]*source
	oldest list.List // of *setup: those in progress and not abandoned
}

// source is an address with such requests.
type source struct {
	n      int
	places chan struct{}
}

// setup is a setup in progress.
type setup struct {
	began  time.Time
	giveUp context.CancelFunc
}

func newSetups() setups {
	return setups{places: make(chan struct{}, mostSetups), of: make(map[netip.Addr]*source)}
}

// enter counts a request, unless its address has too many.
func (s *setups) enter(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.of[from]
	if src == nil {
		src = &source{places: make(chan struct{}, mostSetupsOf)}
		s.of[from] = src
	}
	if src.n == mostWaitingOf {
		return false
	}
	src.n++
	return true
}

// leave undoes enter.
func (s *setups) leave(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.of[from]
	if src.n--; src.n == 0 {
		delete(s.of, from)
	}
}

// begin waits until a request that has entered may be answered. The setup must stop when the
// returned context is done, and the caller must call done afterwards.
func (s *setups) begin(ctx context.Context, from netip.Addr) (work context.Context, done func(), err error) {
	s.mu.Lock()
	src := s.of[from]
	s.mu.Unlock()
	select {
	case src.places <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if err := s.place(ctx); err != nil {
		<-src.places
		return nil, nil, err
	}
	work, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	e := s.oldest.PushBack(&setup{began: time.Now(), giveUp: cancel})
	s.mu.Unlock()
	young := time.AfterFunc(setupYoung, func() { <-src.places })
	return work, func() {
		cancel()
		s.mu.Lock()
		s.oldest.Remove(e) // no-op if it was abandoned
		s.mu.Unlock()
		<-s.places
		if young.Stop() {
			<-src.places
		}
	}, nil
}

// place acquires one of places. If all are occupied, it abandons the oldest setup as soon as that
// is old enough.
func (s *setups) place(ctx context.Context) error {
	for {
		select {
		case s.places <- struct{}{}:
			return nil
		default:
		}
		var old <-chan time.Time // nil once a setup was abandoned for this caller
		if wait := s.giveUpOldest(); wait > 0 {
			old = time.After(wait)
		}
		select {
		case s.places <- struct{}{}:
			return nil
		case <-old:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveUpOldest abandons the oldest setup, or returns how much longer it may continue.
func (s *setups) giveUpOldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.oldest.Front()
	if e == nil {
		return setupOld // others were abandoned and have not ended yet
	}
	oldest := e.Value.(*setup)
	if wait := setupOld - time.Since(oldest.began); wait > 0 {
		return wait
	}
	oldest.giveUp()
	s.oldest.Remove(e)
	return 0
}

// addrOf returns the address of a peer, or the zero Addr if it has no IP address.
func addrOf(at net.Addr) netip.Addr {
	a, ok := at.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
