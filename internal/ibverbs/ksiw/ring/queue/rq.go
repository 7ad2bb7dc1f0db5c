// SPDX-License-Identifier: BSD-3-Clause

package queue

// An RQ is the receive queue of a QP, or a shared one. Only one goroutine may use it at a time.
type RQ struct {
	ring []Receive
	put  uint32 // entries that have been put
}

// NewRQ returns the queue that is in mapped memory and has this number of entries.
func NewRQ(mem []byte, entries uint32) (*RQ, error) {
	ring, err := entriesOf[Receive](mem, entries, RQSize(entries))
	if err != nil {
		return nil, err
	}
	return &RQ{ring: ring}, nil
}

// Next returns the next entry for the program to fill, nil if the queue is full.
func (q *RQ) Next() *Receive {
	e := &q.ring[q.put&uint32(len(q.ring)-1)]
	if isKernels(&e.word) {
		return nil
	}
	return e
}

// Put gives the kernel the entry that Next has returned. The kernel looks for it when a message
// comes.
func (q *RQ) Put(elements int) {
	q.ring[q.put&uint32(len(q.ring)-1)].word.Store(requestWord(valid, elements, 0))
	q.put++
}
