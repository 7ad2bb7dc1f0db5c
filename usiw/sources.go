// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxSilent limits the silent streams of one listener, those whose Request has not arrived, so
	// that peers that connect and send nothing cannot exhaust the process's descriptors. Loopback
	// addresses have a separate limit of the same size.
	maxSilent = 1024
	// silentGrace is how long a silent stream is given to speak before it can be closed for
	// exceeding Config.MaxSilent, so an address may open many streams at once.
	silentGrace = time.Second
	// orderTimeout is how long a stream whose Request has arrived waits for the Request of the
	// previous stream from the same address. The Requests of a peer that opens one connection after
	// another are thus queued in that order, although a separate goroutine reads each of them. A
	// stream that stays silent delays the next one by at most this time.
	orderTimeout = 100 * time.Millisecond
)

// sources tracks the addresses from which a listener has streams that it has not queued yet. If
// there are too many silent streams, it closes the oldest ones, because a correct peer sends its
// Request at once. A new stream therefore always has some time to speak, even if other programs at
// its address are silent, as may happen behind a NAT. When the listener as a whole has too many,
// the address with the most silent streams loses one.
type sources struct {
	mu     sync.Mutex // guards the fields below, and those of each origin
	of     map[netip.Addr]*origin
	silent [2]int // of loopback addresses, and of all others
}

// origin is one address. The zero Addr represents peers without an address, as in a configured
// Network.
type origin struct {
	at      netip.Addr
	streams int
	last    *arrival   // of the stream accepted last
	silent  []*silence // oldest first
}

// remote is the index of the address in sources.silent: 0 for a loopback address or none, 1 for any
// other.
func (o *origin) remote() int {
	if !o.at.IsValid() || o.at.IsLoopback() {
		return 0
	}
	return 1
}

// silence is a silent stream.
type silence struct {
	since time.Time
	end   func() // closes it
}

// sourceOf returns the address that a stream comes from, as defined by origin.
func sourceOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// enter counts a newly accepted stream. earlier is the previous stream from the same address, or
// nil if none of its streams is pending.
func (s *sources) enter(at netip.Addr) (from *origin, earlier, this *arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = s.of[at]
	if from == nil {
		if s.of == nil {
			s.of = make(map[netip.Addr]*origin)
		}
		from = &origin{at: at}
		s.of[at] = from
	}
	from.streams++
	earlier, this = from.last, newArrival()
	from.last = this
	return from, earlier, this
}

// leave reverses enter: the stream has been queued, or never will be.
func (s *sources) leave(from *origin, this *arrival) {
	close(this.over)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.streams--; from.streams == 0 {
		delete(s.of, from.at)
	}
}

// listen records that a stream is silent, and closes those that exceed the limits. An address other
// than a loopback address keeps at most limit streams for longer than silentGrace. The caller must
// call hear afterwards.
func (s *sources) listen(from *origin, limit int, end func()) *silence {
	this := &silence{since: time.Now(), end: end}
	var ended []*silence
	s.mu.Lock()
	for from.remote() == 1 && len(from.silent) >= limit && this.since.Sub(from.silent[0].since) > silentGrace {
		ended = append(ended, s.forget(from, 0))
	}
	if s.silent[from.remote()] == maxSilent {
		ended = append(ended, s.forget(s.loudest(from.remote()), 0))
	}
	from.silent = append(from.silent, this)
	s.silent[from.remote()]++
	s.mu.Unlock()
	for _, e := range ended {
		e.end()
	}
	return this
}

// forget removes a silent stream from an address, and returns it.
func (s *sources) forget(from *origin, i int) *silence {
	this := from.silent[i]
	from.silent = slices.Delete(from.silent, i, i+1)
	s.silent[from.remote()]--
	return this
}

// loudest returns the address with the most silent streams, among loopback addresses (0) or all
// others (1).
func (s *sources) loudest(remote int) (most *origin) {
	for _, from := range s.of {
		if from.remote() == remote && (most == nil || len(from.silent) > len(most.silent)) {
			most = from
		}
	}
	return most
}

// hear reverses listen: the stream has spoken, or failed. It reports false if listen has closed it.
func (s *sources) hear(from *origin, this *silence) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(from.silent, this)
	if i < 0 {
		return false
	}
	s.forget(from, i)
	return true
}

// arrival lets the next accepted stream follow the progress of this one.
type arrival struct {
	read chan struct{} // closed when its Request has been read; never closed if none arrives
	over chan struct{} // closed when it has been queued, or never will be
}

func newArrival() *arrival { return &arrival{make(chan struct{}), make(chan struct{})} }

// await waits until the stream has been queued or dropped, but only for orderTimeout if its Request
// does not arrive.
func (a *arrival) await(closed <-chan struct{}) {
	if a == nil {
		return
	}
	timer := time.NewTimer(orderTimeout)
	defer timer.Stop()
	select {
	case <-a.read:
		select {
		case <-a.over: // soon, because it only waits for its own predecessor in the same way
		case <-closed:
		}
	case <-a.over:
	case <-timer.C:
	case <-closed:
	}
}
