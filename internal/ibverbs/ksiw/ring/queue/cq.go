// SPDX-License-Identifier: BSD-3-Clause

package queue

// A CQ is a completion queue. Only one goroutine may use it at a time, except that Arm may be
// called beside Take.
type CQ struct {
	ring    []completion
	taken   uint32 // entries that have been taken
	control *control
}

// A Completion is the result of a request.
type Completion struct {
	ID     uint64
	Op     Opcode
	Flags  uint8
	Status Status
	Bytes  uint32
	QP     uint32 // number of the QP
	Imm    uint64 // the 8 bytes, as a number, if Flags has FlagImm
	Key    uint32 // the key that the peer has invalidated, if Flags has FlagInv
}

// NewCQ returns the queue that is in mapped memory and has this number of entries.
func NewCQ(mem []byte, entries uint32) (*CQ, error) {
	ring, err := entriesOf[completion](mem, entries, CQSize(entries))
	if err != nil {
		return nil, err
	}
	return &CQ{ring: ring, control: controlOf(mem, entries)}, nil
}

// Take takes the oldest completion out of the queue. It returns false if there is none.
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

// Arm has the kernel send one event with the next completion, or with the next one of a solicited
// message. The caller must look for completions after that, because one that came before Arm sends
// no event. Arm may be called at any time, also beside Take.
func (q *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		q.control.flags.Store(notifySolicited)
	} else {
		q.control.flags.Store(notifySolicited | notifyNext)
	}
}
