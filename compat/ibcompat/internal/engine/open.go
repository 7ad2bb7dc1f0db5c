// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"errors"
	"sync/atomic"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// A receive for a message that may be longer than a slot is opened when the peer is told of it, if
// the device below can do that (verbs.ProviderOpener): each of its elements gets a key by which
// this peer, on this QP, can write to these bytes.
//
//	posted  in recvs; the peer does not know of it, and can write nothing of it
//	told    the peer has its advert. It is open, then it has keys; or it is not, then long messages for it come in Parts
//	done    it leaves recvs, because a message has filled it, or because the connection is over and the QP is flushed
//
// Invariants:
//
//   - The keys are valid before their advert is said, and invalid before the completion of their
//     receive is in the CQ, whichever message has taken the receive, and before a region of it is
//     closed. Opening and shutting are calls that wait for nobody: no request of the queue stands
//     between, so there is none in progress when a connection ends.
//   - No key is used twice, and none opens more than one element.
//   - At most mostOpen receives of a QP are open, and the peer is not told of further ones
//     meanwhile: it learns of them when others are done. It has been told of one at least, or there
//     would be room; so it never waits for a receive that is there.
//   - At most mostKeys keys of an open device are valid. Receives beyond that are told of without
//     keys.
type openings struct {
	opened int // receives that are open
}

// Implementation constants of keys, and of adverts.
const (
	mostOpen = 128
	mostKeys = 1 << 16

	mostSegments       = mostOpen * mostSGE // of the peer's receives that are kept for a QP
	mostDeviceSegments = 1 << 18            // and for an open device: 4 MiB
)

// opens reports whether a receive is one that is opened when the peer is told of it.
func (q *qp) opens(r *receive) bool {
	return q.ctx.opener != nil && r.total > uint64(q.slots.eager) && r.total < 1<<32 &&
		q.access&verbs.AccessRemoteWrite != 0
}

// open opens a receive. If that cannot be, it stays as it is: a message that needs memory which is
// not valid fails by itself.
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

// shut ends what the peer can do with a receive.
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

// take counts n more of something of which there may be so many.
func take(count *atomic.Int64, n, most int64) bool {
	if count.Add(n) > most {
		count.Add(-n)
		return false
	}
	return true
}

// adverts are the receives that the peer has told of and that no message has used, oldest first. A
// peer can make this side keep so much, whatever it says: 8 bytes for each of wire.MaxTold
// receives, and mostSegments segments, of mostDeviceSegments of the open device. Segments beyond
// that are not kept: what would be written there is sent in Parts.
type adverts struct {
	totals   queue.Ring[advertised]
	segments queue.Ring[wire.Segment] // of the totals, in the same order
	device   *atomic.Int64            // places for segments on the open device
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

// Clear forgets all, and gives the memory of the segments back.
func (a *adverts) Clear() {
	a.device.Add(-int64(len(a.segments.Places())))
	a.segments = queue.Ring[wire.Segment]{}
	a.totals.Clear()
}
