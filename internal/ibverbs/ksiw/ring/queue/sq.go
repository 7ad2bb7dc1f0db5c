// SPDX-License-Identifier: BSD-3-Clause

package queue

// An SQ is a send queue. It is not safe for concurrent use.
type SQ struct {
	ring []Send
	put  uint32 // entries written so far
	told uint32 // put at the last Tell
	bell func() error
}

// NewSQ returns the queue of this many entries in mapped memory. bell makes the kernel process the
// queue.
func NewSQ(mem []byte, entries uint32, bell func() error) (*SQ, error) {
	ring, err := entriesOf[Send](mem, entries, SQSize(entries))
	if err != nil {
		return nil, err
	}
	return &SQ{ring: ring, bell: bell}, nil
}

func (q *SQ) at(n uint32) *Send { return &q.ring[n&uint32(len(q.ring)-1)] }

// Next returns the next entry to fill, or nil unless at least n entries are free.
func (q *SQ) Next(n int) *Send {
	if n > len(q.ring) || isKernels(&q.at(q.put+uint32(n)-1).word) {
		return nil
	}
	return q.at(q.put)
}

// Put passes the entry returned by Next to the kernel.
func (q *SQ) Put(op Opcode, flags uint16, elements int) {
	q.at(q.put).word.Store(requestWord(flags|valid, elements, op))
	q.put++
}

// Tell rings the doorbell for all entries put since the last Tell, unless the kernel is still busy
// with earlier ones. If it returns an error, the kernel may have accepted any number of them.
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
