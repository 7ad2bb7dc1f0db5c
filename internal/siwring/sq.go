// SPDX-License-Identifier: BSD-3-Clause

package siwring

// An SQ is a send queue. One goroutine at a time uses it.
type SQ struct {
	ring []Send
	put  uint32 // entries that have been put
	told uint32 // of those, for which the kernel knows that it has to look
	bell func() error
}

// NewSQ returns the queue with so many entries in mapped memory. bell tells the kernel to look at the queue.
func NewSQ(mem []byte, entries uint32, bell func() error) (*SQ, error) {
	ring, err := entriesOf[Send](mem, entries, SQSize(entries))
	if err != nil {
		return nil, err
	}
	return &SQ{ring: ring, bell: bell}, nil
}

func (q *SQ) at(n uint32) *Send { return &q.ring[n&uint32(len(q.ring)-1)] }

// Next returns the entry that is to be filled, if it and n-1 more are the program's; nil if there is no room for so many.
func (q *SQ) Next(n int) *Send {
	if n > len(q.ring) || isKernels(&q.at(q.put+uint32(n)-1).word) {
		return nil
	}
	return q.at(q.put)
}

// Put gives the entry that Next has returned to the kernel.
func (q *SQ) Put(op Opcode, flags uint16, elements int) {
	q.at(q.put).word.Store(requestWord(flags|valid, elements, op))
	q.put++
}

// Tell rings the doorbell for all that has been put since the last Tell, unless the kernel is still busy with what was put before. If
// the error is not nil, the kernel may have taken any part of it.
func (q *SQ) Tell() error {
	n := q.put - q.told
	if n == 0 {
		return nil
	}
	last := q.at(q.told - 1)
	q.told = q.put
	if int(n) < len(q.ring) && isKernels(&last.word) {
		return nil
	}
	return q.bell()
}
