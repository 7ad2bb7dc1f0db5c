// SPDX-License-Identifier: BSD-3-Clause

package queue

// An RQ is the receive queue of a QP or a shared receive queue. It is not safe for concurrent use.
type RQ struct {
	ring []Receive
	put  uint32 // entries written so far
}

// NewRQ returns the queue of this many entries in mapped memory.
func NewRQ(mem []byte, entries uint32) (*RQ, error) {
	ring, err := entriesOf[Receive](mem, entries, RQSize(entries))
	if err != nil {
		return nil, err
	}
	return &RQ{ring: ring}, nil
}

// Next returns the next entry to fill, or nil if the queue is full.
func (q *RQ) Next() *Receive {
	e := &q.ring[q.put&uint32(len(q.ring)-1)]
	if isKernels(&e.word) {
		return nil
	}
	return e
}

// Put passes the entry returned by Next to the kernel, which looks for it when a message arrives.
func (q *RQ) Put(elements int) {
	q.ring[q.put&uint32(len(q.ring)-1)].word.Store(requestWord(valid, elements, 0))
	q.put++
}
