// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"time"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// An empty Write is an RDMA Write of length 0, whose key and address nobody looks at: a message
// that does nothing. As siw opens its connections without one, the provider posts some for it on
// the active side:
//
//   - One as soon as the connection is there (siwOpensSilently). A responder that keeps to RFC 5044
//     section 7.1.2 may send nothing before.
//   - More after these times, if the program has sent something (siwMissesFirstMessages). siw as
//     responder sends its Reply first and has the socket tell it of data then. Messages that arrive
//     in between, such as the first empty Write, lie there until others come, which for a program
//     that waits for the answer is never. A peer that answers a Read has found them. One that sends
//     by itself may not have, but it does so after its siw was told of the socket: one empty Write
//     after that is the last.
var nudgeAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

const (
	// emptyWrites is how many there can be.
	emptyWrites = 1 + len(nudgeAfter)
	// emptyKey is theirs: some hardware refuses 0.
	emptyKey = 1
)

// Initiated is told that this is the active side.
func (q *siwQP) Initiated() {
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone || q.qpState() != QPStateRTS {
		return
	}
	if q.faults.has(siwOpensSilently) {
		q.sends.mu.Lock()
		q.postEmpty()
		q.sends.mu.Unlock()
	}
	if q.faults.has(siwMissesFirstMessages) {
		q.nudgeLater(nudgeAfter[:])
	}
}

// postEmpty posts an empty Write. The caller holds modify and sends.mu.
func (q *siwQP) postEmpty() {
	wr := ibverbs.Send{ID: idOwn, Op: flatOp(WRRDMAWrite, 0, 0), RKey: emptyKey}
	// If the queue is full there is more to come anyway.
	q.c.Send([]ibverbs.Send{wr}, nil, nil, nil)
}

func (q *siwQP) nudgeLater(after []time.Duration) {
	if len(after) > 0 {
		time.AfterFunc(after[0], func() { q.nudge(after[1:]) })
	}
}

func (q *siwQP) nudge(then []time.Duration) {
	q.modify.Lock()
	defer q.modify.Unlock()
	if q.gone || q.qpState() != QPStateRTS || q.answered.Load() {
		return
	}
	heard := q.heard.Load()
	q.sends.mu.Lock()
	defer q.sends.mu.Unlock()
	if q.sends.tail > 0 {
		q.postEmpty()
	}
	if !heard {
		q.nudgeLater(then)
	}
}
