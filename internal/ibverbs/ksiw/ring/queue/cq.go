// SPDX-License-Identifier: BSD-3-Clause

package queue

// A CQ is a completion queue. It is not safe for concurrent use, except that Arm may be called
// concurrently with Take.
type CQ struct {
	ring    []completion
	taken   uint32 // entries polled so far
	control *control
}

// A Completion is the result of a request.
type Completion struct {
	ID     uint64
	Op     Opcode
	Flags  uint8
	Status Status
	Bytes  uint32
	QP     uint32 // QP number
	Imm    uint64 // the 8 bytes, as a number, if Flags has FlagImm
	Key    uint32 // the key that the peer invalidated, if Flags has FlagInv
}

// NewCQ returns the queue of this many entries in mapped memory.
func NewCQ(mem []byte, entries uint32) (*CQ, error) {
	ring, err := entriesOf[completion](mem, entries, CQSize(entries))
	if err != nil {
		return nil, err
	}
	return &CQ{ring: ring, control: controlOf(mem, entries)}, nil
}

// Take polls the oldest completion. It returns false if the queue is empty.
func (q *CQ) Take(c *Completion) bool {
	e := &q.ring[q.taken&uint32(len(q.ring)-1)]
	flags, op, status := completionParts(e.word.Load())
	if flags&valid == 0 {
		return false
	}
	*c = Completion{ID: e.id, Op: op, Flags: flags &^ valid, Status: min(status, StatusGeneral), Bytes: e.bytes,
		QP: uint32(e.qp), Imm: e.imm}
	if flags&FlagInv != 0 {
		c.Key, c.Imm = invalidated(e.imm), 0
	}
	e.word.Store(0)
	q.taken++
	return true
}

// Arm requests one event for the next completion, or for the next solicited one. The caller must
// poll again after Arm, because a completion that arrived earlier raises no event. Arm is safe for
// concurrent use.
func (q *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		q.control.flags.Store(notifySolicited)
	} else {
		q.control.flags.Store(notifySolicited | notifyNext)
	}
}
