// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "math"

// ring wakes a goroutine that waits for the CQ. It is called when the provider itself has added a
// completion to soft.
func (cq *ledgerCQ) ring() {
	if cq.armed && cq.due() {
		cq.armed = false
		cq.ch.post(cq.owner)
	}
}

// due reports whether a completion for which the CQ was armed has arrived.
func (cq *ledgerCQ) due() bool {
	if cq.lost.Load() {
		return true
	}
	if cq.armedUrgent {
		return cq.urgent != cq.armedAt
	}
	return cq.all != cq.armedAt
}

// ReqNotify arms the CQ. A CQ armed for any completion stays so (ibv_req_notify_cq(3)).
func (cq *ledgerCQ) ReqNotify(solicitedOnly bool) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	solicitedOnly = solicitedOnly && (!cq.armed || cq.armedUrgent)
	cq.armed, cq.armedUrgent, cq.armedAt = true, solicitedOnly, cq.all
	if solicitedOnly {
		cq.armedAt = cq.urgent
	}
	return cq.arm()
}

func (cq *ledgerCQ) arm() error { return cq.kernelCQ.ReqNotify(cq.armedUrgent && !cq.unsolicited) }

// notified returns nil if an event was for a completion that the program does not see, or does not
// see yet. It then rearms the CQ.
func (cq *ledgerCQ) notified() *CQ {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.gone || !cq.armed {
		return nil
	}
	for range 2 {
		if cq.fetch(cq.soft.len()+batch) != nil || cq.due() {
			cq.armed = false
			return cq.owner
		}
		if cq.arm() != nil {
			return cq.owner
		}
	}
	return nil
}

func (cq *ledgerCQ) event(ev *AsyncEvent) {
	ev.CQ = cq.owner
	if ev.Type != EventCQErr {
		return
	}
	ev.Err = ErrCQOverflow
	cq.mu.Lock()
	// The completions in it can still be polled. If the library fails here, the next Poll reports
	// it.
	_ = cq.fetch(math.MaxInt)
	cq.lost.Store(true)
	cq.mu.Unlock()
	cq.endQPs()
}

// overflowed does the work of event for a CQ that overflowed here and not in the device.
func (cq *ledgerCQ) overflowed() {
	cq.mu.Lock()
	gone := cq.gone
	cq.mu.Unlock()
	if gone {
		return
	}
	cq.ctx.async.Post(AsyncEvent{Type: EventCQErr, CQ: cq.owner, Err: ErrCQOverflow})
	cq.endQPs()
}

// endQPs wakes a goroutine that waits for the CQ, and moves its QPs to ERR.
func (cq *ledgerCQ) endQPs() {
	cq.mu.Lock()
	if !cq.gone && cq.armed {
		cq.armed = false
		cq.ch.post(cq.owner)
	}
	qps := cq.ledgers.all()
	cq.mu.Unlock()
	for _, q := range qps {
		q.fail(ErrCQOverflow)
	}
}
