// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// record is what is remembered of a DTO until it has completed.
type record struct {
	cookie   uint64
	length   uint32 // bytes, of a request
	op       DTO
	ext      Extension
	quiet    bool // its success wakes nobody (CompletionUnsignalled)
	suppress bool // its success makes no completion
	marker   bool // our own: the program sees nothing of it
}

// records are those of one queue of an EP, in the order of posting: a ring. A success says that
// everything before it has succeeded too, of which suppressed DTOs are told by nothing else.
type records struct {
	mu      sync.Mutex // held during the post too: the ring has the order of the queue
	ring    []record
	head, n int
	room    int         // for the program's; one more place is for the marker
	sgl     []verbs.SGE // scratch of a post
	sends   [1]verbs.SendWR
	recvs   [1]verbs.RecvWR
}

func (r *records) init(room, segments int) {
	r.ring, r.room, r.sgl = make([]record, room+1), room, make([]verbs.SGE, 0, segments)
}

// full reports whether the program's places are taken. The caller holds mu.
func (r *records) full() bool { return r.n >= r.room }

// next is the place of the next record. The caller holds mu, and calls push when the DTO is posted.
func (r *records) next() int { return (r.head + r.n) % len(r.ring) }

func (r *records) push(rec record) {
	r.ring[r.next()] = rec
	r.n++
}

// complete takes the record at a place, and those before it. It reports false if there is none.
func (r *records) complete(place int) (record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if place >= len(r.ring) {
		return record{}, false
	}
	gone := (place-r.head+len(r.ring))%len(r.ring) + 1
	if gone > r.n {
		return record{}, false
	}
	r.head, r.n = (place+1)%len(r.ring), r.n-gone
	return r.ring[place], true
}

func (r *records) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n == 0
}

// silent reports whether the newest record is of a DTO whose success nothing tells.
func (r *records) silent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n > 0 && r.ring[(r.head+r.n-1)%len(r.ring)].suppress
}

func (r *records) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head, r.n = 0, 0
}
