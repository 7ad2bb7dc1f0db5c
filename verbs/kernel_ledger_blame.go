// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "sync/atomic"

// blamed has what is known of requests that have failed, for the send queue and for the receives.
type blamed struct {
	last   [2]atomic.Pointer[blame]       // the last one
	denied [2]atomic.Pointer[AccessError] // what its memory does not allow, if the driver's own provider has found that
}

// blame is what a ledger knows of a request that has failed. The device tells nothing but the
// status.
type blame struct {
	id     uint64
	status WCStatus
	opcode WCOpcode
	denied *AccessError // nil = not known
}

// blame notes a request that has failed.
func (q *ledgerQP) blame(wc *WC, op WROpcode, recv bool) {
	if wc.Status == WCSuccess || wc.Status == WCWRFlushErr {
		return
	}
	b, queue := &blame{id: wc.ID, status: wc.Status, opcode: op.Completion()}, 0
	if recv {
		b.opcode, queue = WCRecv, 1
	}
	if wc.Status == WCLocProtErr {
		b.denied = q.blamed.denied[queue].Swap(nil)
	}
	q.blamed.last[queue].Store(b)
}

// forget forgets all.
func (b *blamed) forget() {
	for i := range b.last {
		b.last[i].Store(nil)
		b.denied[i].Store(nil)
	}
}

// Explain implements ProviderQPExplainer: it knows which request it was, and what the driver's own
// provider has found.
func (q *ledgerQP) Explain(wc *WC) (opcode WCOpcode, known bool, reason error) {
	for i := range q.blamed.last {
		b := q.blamed.last[i].Load()
		switch {
		case b == nil || b.id != wc.ID || b.status != wc.Status:
		case b.denied != nil:
			return b.opcode, true, b.denied
		default:
			return b.opcode, true, nil
		}
	}
	return 0, false, nil
}
