// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// The limits of the connections that a listener sets up. A set-up has memory for its connection, and a peer may keep it waiting for some
// seconds; so an address has a few at a time, others of its requests wait for them, and further ones are refused. Other addresses
// do not notice.
const (
	mostSetups    = 1024 // in progress at a time
	mostSetupsOf  = 64   // of one address
	mostWaitingOf = 1024 // requests of one address, in progress or waiting
)

// setups are the requests that a listener is answering.
type setups struct {
	places chan struct{} // holds one element for each in progress

	mu sync.Mutex // guards of
	of map[netip.Addr]*source
}

// source is an address with such requests.
type source struct {
	n      int
	places chan struct{}
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

// begin waits until a request that has entered may be answered. The caller calls done afterwards.
func (s *setups) begin(ctx context.Context, from netip.Addr) (done func(), err error) {
	s.mu.Lock()
	src := s.of[from]
	s.mu.Unlock()
	for _, places := range []chan struct{}{src.places, s.places} {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			if places == s.places {
				<-src.places
			}
			return nil, ctx.Err()
		}
	}
	return func() { <-s.places; <-src.places }, nil
}

// addrOf returns the address of a peer; the zero Addr if it is of another kind.
func addrOf(at net.Addr) netip.Addr {
	a, ok := at.(interface{ AddrPort() netip.AddrPort })
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}
