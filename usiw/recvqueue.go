// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// recvEntry is a receive request.
type recvEntry struct {
	id    uint64
	total uint64 // bytes in sgl
	sgl   []verbs.SGE
}

// recvQueue is a ring of receive requests that grows up to its limit. It belongs to a QP, or to an
// SRQ that several QPs share.
type recvQueue struct {
	pd     *domain // the domain whose keys its requests may use
	maxSGE int
	name   string // the name of its limit
	low    func() // called without mu when fewer than watermark requests are left

	mu        sync.Mutex // guards the fields below; taken after qp.mu
	ring      []recvEntry
	limit     uint
	watermark uint // 0 = none; reset to 0 before low is called
	head      uint
	tail      uint
}

func (r *recvQueue) init(pd *domain, wr, sge int) {
	r.pd, r.limit, r.maxSGE, r.name = pd, uint(wr), sge, "max_recv_wr"
}

func (r *recvQueue) at(i uint) *recvEntry { return &r.ring[i&uint(len(r.ring)-1)] }

func (r *recvQueue) post(wrs []verbs.RecvWR) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range wrs {
		if r.tail-r.head == r.limit {
			return n, fmt.Errorf("%w: %s %d", verbs.ErrQueueFull, r.name, r.limit)
		}
		if r.tail-r.head == uint(len(r.ring)) {
			r.grow()
		}
		e := r.at(r.tail)
		e.id, e.total = wrs[n].ID, 0
		e.sgl = append(e.sgl[:0], wrs[n].SGL...)
		for i := range e.sgl {
			e.total += uint64(e.sgl[i].Length)
		}
		r.tail++
	}
	return len(wrs), nil
}

// grow doubles the ring. The caller holds r.mu.
func (r *recvQueue) grow() {
	ring := make([]recvEntry, max(chunk, 2*len(r.ring)))
	sges := make([]verbs.SGE, len(ring)*r.maxSGE)
	for i := range ring {
		ring[i].sgl = sges[i*r.maxSGE : i*r.maxSGE : (i+1)*r.maxSGE]
	}
	for i := r.head; i != r.tail; i++ {
		ring[i&uint(len(ring)-1)] = *r.at(i)
	}
	r.ring = ring
}

// take removes the oldest request and copies it into e, whose sgl must have room; it reports false
// if the queue is empty.
func (r *recvQueue) take(e *recvEntry) bool {
	r.mu.Lock()
	if r.head == r.tail {
		r.mu.Unlock()
		return false
	}
	o := r.at(r.head)
	e.id, e.total = o.id, o.total
	e.sgl = append(e.sgl[:0], o.sgl...)
	r.head++
	low := r.tail-r.head < r.watermark
	if low {
		r.watermark = 0
	}
	r.mu.Unlock()
	if low {
		r.low()
	}
	return true
}

// flush completes every request as flushed.
func (r *recvQueue) flush(q *qp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.head != r.tail; r.head++ {
		q.recvCQ.push(&verbs.WC{ID: r.at(r.head).id, Status: verbs.WCWRFlushErr, QPNum: q.num}, false)
	}
}

// clear drops every request.
func (r *recvQueue) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.head, r.tail = 0, 0
}
