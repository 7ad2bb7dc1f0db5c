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
	// maxSilent limits the streams of one listener that are silent: their Request has not arrived.
	// Loopback addresses have as many of their own. It keeps peers that connect and say nothing
	// from using up the process's descriptors.
	maxSilent = 1024
	// silentGrace is how long a silent stream counts as one that is about to speak. So an address
	// may open many streams at once, more than Config.MaxSilent.
	silentGrace = time.Second
	// orderTimeout is how long a stream whose Request is there waits for that of the stream which
	// the same address opened before it. The Requests of a peer that opens one connection after
	// another are queued in that order, although each is read by a goroutine of its own; and a
	// stream that stays silent delays the next one by this time at most.
	orderTimeout = 100 * time.Millisecond
)

// sources are the addresses from which a listener has streams that it has not queued. When there
// are too many silent streams, the oldest are closed: a correct peer sends its Request at once. So
// a new stream always has some time to speak, even if other programs at its address, as behind a
// NAT, are silent. Where an address has to give, it is the one with the most silent streams.
type sources struct {
	mu     sync.Mutex // guards the fields below, and those of each origin
	of     map[netip.Addr]*origin
	silent [2]int // of loopback addresses, and of all others
}

// origin is one address. The zero Addr stands for what has no address, as in a configured Network.
type origin struct {
	at      netip.Addr
	streams int
	last    *arrival   // of the stream that was accepted last
	silent  []*silence // the oldest one first
}

// remote is the place of the address in sources.silent: 0 for a loopback address, or none, 1 for
// another.
func (o *origin) remote() int {
	if !o.at.IsValid() || o.at.IsLoopback() {
		return 0
	}
	return 1
}

// silence is a stream that is silent.
type silence struct {
	since time.Time
	end   func() // closes it
}

// sourceOf returns the address that a stream comes from, as in origin.
func sourceOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap()
}

// enter counts a stream that was accepted now. earlier is the one which its address opened before,
// nil if that has been queued.
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

// leave is the opposite of enter: the stream has been queued, or will not be.
func (s *sources) leave(from *origin, this *arrival) {
	close(this.over)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.streams--; from.streams == 0 {
		delete(s.of, from.at)
	}
}

// listen notes that a stream is silent, and ends those for which there is no room any more. An
// address other than a loopback's keeps limit of them for longer than silentGrace. The caller calls
// hear afterwards.
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

// forget takes a silent stream from an address, and returns it.
func (s *sources) forget(from *origin, i int) *silence {
	this := from.silent[i]
	from.silent = slices.Delete(from.silent, i, i+1)
	s.silent[from.remote()]--
	return this
}

// loudest returns the address with the most silent streams, of loopback addresses (0) or of others
// (1).
func (s *sources) loudest(remote int) (most *origin) {
	for _, from := range s.of {
		if from.remote() == remote && (most == nil || len(from.silent) > len(most.silent)) {
			most = from
		}
	}
	return most
}

// hear is the opposite of listen: the stream has spoken, or failed. It reports false if it has been
// ended.
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

// arrival tells the stream that was accepted next how far this one is.
type arrival struct {
	read chan struct{} // closed when its Request is there; if none comes, never
	over chan struct{} // closed when it has been queued, or will not be
}

func newArrival() *arrival { return &arrival{make(chan struct{}), make(chan struct{})} }

// await waits until the stream is over, unless its Request does not come.
func (a *arrival) await(closed <-chan struct{}) {
	if a == nil {
		return
	}
	timer := time.NewTimer(orderTimeout)
	defer timer.Stop()
	select {
	case <-a.read:
		select {
		case <-a.over: // soon: it waits only as this one does
		case <-closed:
		}
	case <-a.over:
	case <-timer.C:
	case <-closed:
	}
}
