// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// ring tells who waits that the provider itself has put something into soft.
func (cq *kernelCQ) ring() {
	if cq.armed && cq.due() {
		cq.armed = false
		cq.ch.post(cq)
	}
}

// due reports whether there has been what the CQ was armed for.
func (cq *kernelCQ) due() bool {
	if cq.lost.Load() {
		return true
	}
	if cq.armedUrgent {
		return cq.urgent != cq.armedAt
	}
	return cq.all != cq.armedAt
}

// ReqNotify arms the CQ.
func (cq *kernelCQ) ReqNotify(solicitedOnly bool) error {
	if !cq.tracked {
		return callError("ibv_req_notify_cq", cq.c.reqNotify(solicitedOnly))
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.armed, cq.armedUrgent, cq.armedAt = true, solicitedOnly, cq.all
	if solicitedOnly {
		cq.armedAt = cq.urgent
	}
	return cq.arm()
}

func (cq *kernelCQ) arm() error {
	solicitedOnly := cq.armedUrgent && !cq.ctx.model.noSolicited
	return callError("ibv_req_notify_cq", cq.c.reqNotify(solicitedOnly))
}

// notified reports whether an event of the device's is one for the program. If it was for a completion that the program
// does not see, or not yet, the CQ is armed again.
func (cq *kernelCQ) notified() bool {
	if !cq.tracked {
		return true
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.gone || !cq.armed {
		return false
	}
	for range 2 {
		if cq.pump(cq.soft.len()+pumpBatch) != nil || cq.due() {
			cq.armed = false
			return true
		}
		if cq.arm() != nil {
			return true
		}
	}
	return false
}
