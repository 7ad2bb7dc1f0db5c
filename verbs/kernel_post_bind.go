// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"fmt"
	"syscall"
)

// BindMW queues the bind of a window of type 1.
func (q *kernelQP) BindMW(id uint64, flags SendFlags, b *MWBind) (uint32, error) {
	if err := checkBinding(b); err != nil {
		return 0, err
	}
	s := &q.send
	s.mu.Lock()
	defer s.mu.Unlock()
	// As in PostSend.
	if q.tracked && s.track.requests() >= q.cap.MaxSendWR {
		q.relieveSends()
	}
	switch st := q.qpState(); {
	case st < QPStateRTS:
		return 0, &StateError{State: st, Why: "windows can be bound from RTS on"}
	case q.tracked && (st == QPStateErr || s.track.poisoned):
		return q.bindHeld(id, b)
	case q.tracked && s.track.requests() >= q.cap.MaxSendWR:
		return 0, ErrQueueFull
	case q.tracked && !q.open():
		return q.bindHeld(id, b)
	}
	if q.tracked {
		id = q.enter(&SendWR{ID: id, Flags: flags}, false)
		s.track.lend(id)
	}
	mw := ownMW(b)
	if q.tracked {
		flags |= SendSignaled
	}
	rc := q.c.bindMW(id, flags, mw.c, ownMR(b).c, b.Addr, b.Length, b.Access)
	switch {
	case rc == 0:
		key := mw.c.rkey()
		if q.tracked {
			q.lookAfterSends()
		}
		return key, nil
	case q.tracked:
		s.track.withdraw(1)
	}
	if rc == int(syscall.ENOMEM) {
		return 0, fmt.Errorf("%w: %w", ErrQueueFull, callError("ibv_bind_mw", rc))
	}
	return 0, callError("ibv_bind_mw", rc)
}

// bindHeld takes a bind that is to be flushed. It unlocks the queue meanwhile.
func (q *kernelQP) bindHeld(id uint64, b *MWBind) (uint32, error) {
	q.send.mu.Unlock()
	_, err := q.postHeld([]SendWR{{ID: id, Opcode: WRBindMW}})
	q.send.mu.Lock()
	return b.MW.RKey(), err
}
