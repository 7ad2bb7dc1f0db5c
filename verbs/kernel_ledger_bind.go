// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// BindMW posts the bind of a type 1 window.
func (q *ledgerQP) BindMW(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	if err := checkBinding(b); err != nil {
		return 0, err
	}
	s := &q.sends
	s.mu.Lock()
	defer s.mu.Unlock()
	// As in PostSend.
	if s.requests() >= q.cap.MaxSendWR {
		q.relieveSends()
	}
	switch st := q.qpState(); {
	case st < QPStateRTS:
		return 0, bindsBefore(st)
	case st == QPStateErr || s.poisoned:
		return q.keepBind(id, b)
	case s.requests() >= q.cap.MaxSendWR:
		return 0, ErrQueueFull
	case !q.admitAll():
		return q.keepBind(id, b)
	}
	seq := q.enter(&SendWR{ID: id, Opcode: WRBindMW, Flags: flags}, false)
	s.lend(seq)
	key, err := q.bind(seq, flags|SendSignaled, b)
	if err != nil {
		s.withdraw(1)
		return 0, err
	}
	q.lookAfterSends()
	return key, nil
}

// keepBind enters a bind that will be flushed. It unlocks the queue meanwhile.
func (q *ledgerQP) keepBind(id uint64, b *MWBind) (uint32, error) {
	q.sends.mu.Unlock()
	_, err := q.keepSends([]SendWR{{ID: id, Opcode: WRBindMW}})
	q.sends.mu.Lock()
	return b.MW.RKey(), err
}
