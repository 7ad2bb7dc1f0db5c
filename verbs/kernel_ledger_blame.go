// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import "sync/atomic"

// blamed holds what is known about failed requests, for the send queue and the receives.
type blamed struct {
	last   [2]atomic.Pointer[blame]       // the most recent failure
	denied [2]atomic.Pointer[AccessError] // the denied access, if the driver's own provider found one
}

// blame is what a ledger knows about a failed request. The device reports only the status.
type blame struct {
	id     uint64
	status WCStatus
	opcode WCOpcode
	denied *AccessError // nil = unknown
}

// blame records a failed request.
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

// forget clears all records.
func (b *blamed) forget() {
	for i := range b.last {
		b.last[i].Store(nil)
		b.denied[i].Store(nil)
	}
}

// Explain implements ProviderQPExplainer. It identifies the request and adds what the driver's own
// provider found.
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
