// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "time"

// The responder's siw sends its Reply first and has the socket tell it of data then (siw_accept). Messages that arrive in
// between lie there until others come, which for a program that waits for the answer is never. So a program that has sent
// and not heard anything so long after it has connected is helped by one message more, which does nothing else: an RDMA Write
// of length 0, whose key and address nobody looks at.
var rouseAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

// Initiated is told that this is the active side.
func (q *kernelQP) Initiated() {
	if q.ctx.model.deaf {
		q.rouseLater(rouseAfter[:])
	}
}

func (q *kernelQP) rouseLater(after []time.Duration) {
	if len(after) > 0 {
		time.AfterFunc(after[0], func() { q.rouse(after[1:]) })
	}
}

func (q *kernelQP) rouse(then []time.Duration) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone || q.qpState() != QPStateRTS || q.heard.Load() {
		return
	}
	q.send.mu.Lock()
	defer q.send.mu.Unlock()
	if q.send.track.tail > 0 {
		wr := flatSend{id: idRouse, op: flatOp(WRRDMAWrite, 0, 0)}
		// If the queue is full there is more to come anyway.
		q.c.postSend([]flatSend{wr}, nil, nil, nil)
	}
	q.rouseLater(then)
}
