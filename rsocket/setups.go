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

// The limits of the connections that a listener sets up. A set-up has memory for its connection,
// and a peer may keep it waiting for some seconds. An address has a few at a time, others of its
// requests wait for them, and further ones are refused; other addresses do not notice. A set-up
// that takes long does not keep those of its address waiting, as they may be of other programs,
// behind a NAT. If there are too many in all, the oldest one is given up.
const (
	mostSetups    = 1024 // in progress
	mostSetupsOf  = 64   // of one address, and younger than setupYoung
	mostWaitingOf = 1024 // requests of one address, in progress or waiting

	// With setupYoung, an address cannot have more than 256 set-ups begin in a second while its
	// peers stay silent: each costs time too.
	setupYoung = 250 * time.Millisecond
	setupOld   = 500 * time.Millisecond // from when on a set-up may be given up
)

// setups are the requests that a listener is answering.
type setups struct {
	places chan struct{} // holds one element for each in progress

	mu     sync.Mutex // guards the fields below
	of     map[netip.Addr]*source
	oldest list.List // of *setup: those in progress that have not been given up
}

// source is an address with such requests.
type source struct {
	n      int
	places chan struct{}
}

// setup is a set-up in progress.
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

// leave is the opposite of enter.
func (s *setups) leave(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	src := s.of[from]
	if src.n--; src.n == 0 {
		delete(s.of, from)
	}
}

// begin waits until a request that has entered may be answered. The set-up ends when the context
// that begin returns is done, and the caller calls done afterwards.
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
		s.oldest.Remove(e) // does nothing if it has been given up
		s.mu.Unlock()
		<-s.places
		if young.Stop() {
			<-src.places
		}
	}, nil
}

// place takes one of places. If there is none, it has the oldest set-up give up its own, as soon as
// that is old.
func (s *setups) place(ctx context.Context) error {
	for {
		select {
		case s.places <- struct{}{}:
			return nil
		default:
		}
		var old <-chan time.Time // never, when one has been given up for this caller
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

// giveUpOldest gives up the oldest set-up, or returns how long that may go on.
func (s *setups) giveUpOldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.oldest.Front()
	if e == nil {
		return setupOld // others have been given up, and have not ended yet
	}
	oldest := e.Value.(*setup)
	if wait := setupOld - time.Since(oldest.began); wait > 0 {
		return wait
	}
	oldest.giveUp()
	s.oldest.Remove(e)
	return 0
}

// addrOf returns the address of a peer; the zero Addr if it is of another kind.
func addrOf(at net.Addr) netip.Addr {
	a, ok := at.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
