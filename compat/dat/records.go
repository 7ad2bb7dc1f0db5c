// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// record tracks a DTO until it completes.
type record struct {
	cookie   uint64
	length   uint32 // bytes, of a request
	op       DTO
	ext      Extension
	quiet    bool // success wakes no waiter (CompletionUnsignalled)
	suppress bool // success generates no completion
	marker   bool // posted by this package, invisible to the program
}

// records is a ring of the records of one queue of an EP, in posting order. A successful completion
// implies that everything before it succeeded too; for suppressed DTOs this is the only
// confirmation.
type records struct {
	mu      sync.Mutex // also held during the post, so that the ring has the order of the queue
	ring    []record
	head, n int
	room    int         // places for the program; the marker has one more
	sgl     []verbs.SGE // scratch space for a post
	sends   [1]verbs.SendWR
	recvs   [1]verbs.RecvWR
}

func (r *records) init(room, segments int) {
	r.ring, r.room, r.sgl = make([]record, room+1), room, make([]verbs.SGE, 0, segments)
}

// full reports whether the program's places are all occupied. The caller holds mu.
func (r *records) full() bool { return r.n >= r.room }

// next returns the index of the next record. The caller holds mu, and calls push once the DTO is
// posted.
func (r *records) next() int { return (r.head + r.n) % len(r.ring) }

func (r *records) push(rec record) {
	r.ring[r.next()] = rec
	r.n++
}

// complete removes the record at an index and those before it. It returns false if there is none.
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

// silent reports whether the newest record is of a suppressed DTO.
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
