// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// maxSilent limits the streams of one listener that are silent: their Request has not arrived. Loopback addresses have as many of
	// their own. It keeps peers that connect and say nothing from using up the process's descriptors.
	maxSilent = 1024
	// silentGrace is how long a silent stream counts as one that is about to speak. So an address may open many streams at once,
	// more than Config.MaxSilent.
	silentGrace = time.Second
	// orderTimeout is how long a stream whose Request is there waits for that of the stream which the same address opened before it.
	// The Requests of a peer that opens one connection after another are queued in that order, although each is read by a goroutine
	// of its own; and a stream that stays silent delays the next one by this time at most.
	orderTimeout = 100 * time.Millisecond
)

// sources are the addresses from which a listener has streams that it has not queued. When there are too many silent streams, the oldest
// ones are closed: a correct peer sends its Request at once. So a new stream always has some time to speak, though other programs at its
// address, as behind a NAT, are silent. Where an address has to give, it is the one with the most silent streams.
type sources struct {
	mu     sync.Mutex // guards the fields below, and those of each origin
	of     map[netip.Addr]*origin
	silent int // of all but the zero Addr
}

// origin is one address. The zero Addr stands for all loopback addresses, and for what has no address, as in a configured Network.
type origin struct {
	at      netip.Addr
	streams int
	last    *arrival   // of the stream that was accepted last
	silent  []*silence // the oldest one first
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
	from := tcp.AddrPort().Addr().Unmap()
	if from.IsLoopback() {
		return netip.Addr{}
	}
	return from
}

// enter counts a stream that was accepted now. earlier is the one which its address opened before, nil if that has been queued.
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

// listen notes that a stream is silent, and ends those for which there is no room any more. The caller calls hear afterwards.
func (s *sources) listen(from *origin, limit int, end func()) *silence {
	this := &silence{since: time.Now(), end: end}
	var ended []*silence
	s.mu.Lock()
	if !from.at.IsValid() {
		if len(from.silent) == maxSilent {
			ended = s.endOldest(from, ended)
		}
	} else {
		for len(from.silent) >= limit && this.since.Sub(from.silent[0].since) > silentGrace {
			ended = s.endOldest(from, ended)
		}
		if s.silent == maxSilent {
			ended = s.endOldest(s.loudest(), ended)
		}
		s.silent++
	}
	from.silent = append(from.silent, this)
	s.mu.Unlock()
	for _, e := range ended {
		e.end()
	}
	return this
}

// endOldest takes the oldest silent stream of an address from it, to be ended by the caller.
func (s *sources) endOldest(from *origin, ended []*silence) []*silence {
	ended = append(ended, from.silent[0])
	s.forget(from, 0)
	return ended
}

func (s *sources) forget(from *origin, i int) {
	from.silent = slices.Delete(from.silent, i, i+1)
	if from.at.IsValid() {
		s.silent--
	}
}

// loudest returns the address with the most silent streams, other than the zero Addr.
func (s *sources) loudest() (most *origin) {
	for _, from := range s.of {
		if from.at.IsValid() && (most == nil || len(from.silent) > len(most.silent)) {
			most = from
		}
	}
	return most
}

// hear is the opposite of listen: the stream has spoken, or failed. It reports false if it has been ended.
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
