// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"errors"
	"sync/atomic"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// openings manages the receives that the peer may write into. A receive for a message that may
// exceed a slot is opened when it is advertised, if the inner device supports that
// (verbs.ProviderOpener): each element gets a key that lets this peer, on this QP, write to these
// bytes. A receive passes through three states:
//
//	posted  in recvs, not advertised: the peer cannot write any of it
//	told    advertised. With keys it is open; without, long messages for it come in Parts
//	done    leaves recvs: a message filled it, or the connection is over and the QP is flushed
//
// Invariants:
//
//   - Keys are valid before their advert is sent. They are invalid before the completion of their
//     receive is in the CQ, whichever message consumed the receive, and before any of its regions
//     is closed. Opening and shutting never block: neither is a request in a queue, so none is in
//     progress when a connection ends.
//   - No key is used twice, and each opens exactly one element.
//   - At most mostOpen receives of a QP are open. Further receives are not advertised until others
//     are done. A peer that gets no further advert therefore already holds some, and never waits
//     for a receive that exists.
//   - At most mostKeys keys of an open device are valid. Receives beyond that are advertised
//     without keys.
type openings struct {
	opened int // receives that are open
}

// Implementation limits of keys and adverts.
const (
	mostOpen = 128
	mostKeys = 1 << 16

	mostSegments       = mostOpen * mostSGE // segments of the peer's receives retained for a QP
	mostDeviceSegments = 1 << 18            // and for an open device: 4 MiB
)

// opens reports whether a receive is to be opened when it is advertised.
func (q *qp) opens(r *receive) bool {
	return q.ctx.opener != nil && r.total > uint64(q.slots.eager) && r.total < 1<<32 &&
		q.access&verbs.AccessRemoteWrite != 0
}

// open opens a receive. If that fails, the receive stays unopened; a message that needs invalid
// memory fails when it arrives.
func (q *qp) open(r *receive, a *wire.Advert) {
	for _, s := range r.sgl {
		if s.Length == 0 {
			continue
		}
		key, err := q.openRange(s)
		if err != nil {
			q.revoke(r)
			a.Segments = a.Segments[:0]
			return
		}
		r.keys = append(r.keys, key)
		a.Segments = append(a.Segments, wire.Segment{Addr: s.Addr, RKey: key, Length: s.Length})
	}
	q.opened++
}

func (q *qp) openRange(s verbs.SGE) (key uint32, err error) {
	_, m, err := q.dom.find(s.LKey, s.Addr, uint64(s.Length), verbs.AccessLocalWrite)
	if err != nil {
		return 0, err
	}
	defer m.mu.RUnlock()
	if !take(&q.ctx.keyed, 1, mostKeys) {
		return 0, errManyKeys
	}
	s.LKey = m.in.LKey()
	if key, err = q.ctx.opener.OpenRange(q.in.Provider(), s); err != nil {
		q.ctx.keyed.Add(-1)
	}
	return key, err
}

var errManyKeys = errors.New("the receives of the open device have all the keys that there may be")

// shut revokes the peer's access to a receive.
func (q *qp) shut(r *receive) {
	if len(r.keys) > 0 {
		q.opened--
		q.revoke(r)
	}
}

func (q *qp) revoke(r *receive) {
	for _, key := range r.keys {
		q.ctx.opener.ShutRange(key)
	}
	q.ctx.keyed.Add(-int64(len(r.keys)))
	r.keys = r.keys[:0]
}

// take adds n to count unless that exceeds most.
func take(count *atomic.Int64, n, most int64) bool {
	if count.Add(n) > most {
		count.Add(-n)
		return false
	}
	return true
}

// adverts holds the peer's receives that no message has used, oldest first. Whatever the peer
// sends, this side retains at most 8 bytes for each of wire.MaxTold receives, and mostSegments
// segments, which count towards the open device's mostDeviceSegments. Segments beyond that are
// discarded, and the data that would be written there are sent in Parts.
type adverts struct {
	totals   queue.Ring[advertised]
	segments queue.Ring[wire.Segment] // segments of totals, in the same order
	device   *atomic.Int64            // capacity for segments on the open device
}

// advertised is an advert without its segments.
type advertised struct {
	total    uint32
	segments uint8
}

func (a *adverts) Len() int { return a.totals.Len() }

func (a *adverts) add(ad *wire.Advert) {
	kept := ad.Segments
	if !a.roomFor(len(kept)) {
		kept = nil
	}
	a.segments.Append(kept)
	a.totals.Push(advertised{ad.Total, uint8(len(kept))})
}

func (a *adverts) roomFor(n int) bool {
	have := len(a.segments.Places())
	if a.segments.Len()+n <= have {
		return true
	}
	grown := queue.Grown[wire.Segment](2 * have)
	if more := len(grown.Places()) - have; have+more > mostSegments ||
		!take(a.device, int64(more), mostDeviceSegments) {
		return false
	}
	for i := range a.segments.Len() {
		grown.Push(*a.segments.At(i))
	}
	a.segments = grown
	return true
}

// used removes the oldest advert.
func (a *adverts) used() {
	for range a.totals.Pop().segments {
		a.segments.Pop()
	}
}

// Clear removes all adverts and releases the memory of the segments.
func (a *adverts) Clear() {
	a.device.Add(-int64(len(a.segments.Places())))
	a.segments = queue.Ring[wire.Segment]{}
	a.totals.Clear()
}
