// SPDX-License-Identifier: BSD-3-Clause

package queue

// An SQ is a send queue. Only one goroutine may use it at a time.
type SQ struct {
	ring []Send
	put  uint32 // entries that have been put
	told uint32 // those of them that the kernel has been told of
	bell func() error
}

// NewSQ returns the queue that is in mapped memory and has this number of entries. bell tells the
// kernel to look at the queue.
func NewSQ(mem []byte, entries uint32, bell func() error) (*SQ, error) {
	ring, err := entriesOf[Send](mem, entries, SQSize(entries))
	if err != nil {
		return nil, err
	}
	return &SQ{ring: ring, bell: bell}, nil
}

func (q *SQ) at(n uint32) *Send { return &q.ring[n&uint32(len(q.ring)-1)] }

// Next returns the next entry for the program to fill, if there is room for n entries, or else nil.
func (q *SQ) Next(n int) *Send {
	if n > len(q.ring) || isKernels(&q.at(q.put+uint32(n)-1).word) {
		return nil
	}
	return q.at(q.put)
}

// Put gives the kernel the entry that Next has returned.
func (q *SQ) Put(op Opcode, flags uint16, elements int) {
	q.at(q.put).word.Store(requestWord(flags|valid, elements, op))
	q.put++
}

// Tell rings the doorbell for all that has been put since the last Tell, unless the kernel is still
// busy with what was put before. If the error is not nil, the kernel may have taken any part of it.
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
