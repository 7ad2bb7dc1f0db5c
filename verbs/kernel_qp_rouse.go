// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "time"

// An empty Write is an RDMA Write of length 0, whose key and address nobody looks at: a message that does nothing. As siw opens
// its connections without one, the provider posts some for it on the active side:
//
//   - One as soon as the connection is there. A responder that keeps to RFC 5044 section 7.1.2 may send nothing before.
//   - More, if the program has sent and not heard anything after these times. siw as responder sends its Reply first and has the
//     socket tell it of data then (siw_accept). Messages that arrive in between, such as the first empty Write, lie there until
//     others come, which for a program that waits for the answer is never.
var rouseAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

const (
	// emptyWrites is how many there can be.
	emptyWrites = 1 + len(rouseAfter)
	// emptyKey is theirs: some hardware refuses 0.
	emptyKey = 1
)

// Initiated is told that this is the active side.
func (q *kernelQP) Initiated() {
	if !q.ctx.model.deaf {
		return
	}
	q.modify.Lock()
	defer q.modify.Unlock()
	if !q.gone && q.qpState() == QPStateRTS {
		q.send.mu.Lock()
		q.postEmpty()
		q.send.mu.Unlock()
		q.rouseLater(rouseAfter[:])
	}
}

// postEmpty posts an empty Write. The caller holds modify and send.mu.
func (q *kernelQP) postEmpty() {
	wr := flatSend{id: idEmpty, op: flatOp(WRRDMAWrite, 0, 0), rkey: emptyKey}
	// If the queue is full there is more to come anyway.
	q.c.postSend([]flatSend{wr}, nil, nil, nil)
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
		q.postEmpty()
	}
	q.rouseLater(then)
}
