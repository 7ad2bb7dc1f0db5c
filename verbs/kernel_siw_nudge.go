// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"time"

	"github.com/goverbs/goverbs/internal/ibverbs"
)

// An empty Write is an RDMA Write of length 0, whose key and address are never checked: a message
// without effect. siw as initiator opens its connections silently, so the provider posts empty
// Writes for it on the active side:
//
//   - One as soon as the connection is established (siwOpensSilently). Until it arrives, a
//     responder that follows RFC 5044 section 7.1.2 may not send anything.
//   - More after these delays, if the program has sent something (siwMissesFirstMessages). siw as
//     responder sends its Reply first and only then asks the socket for notifications. Messages
//     that arrive in between, such as the first empty Write, stay unread until more data arrive. If
//     the program waits for the answer, that never happens. A peer that answers a Read has found
//     the messages. A peer that sends on its own may not have, but it sends only after its siw has
//     asked for notifications: one more empty Write is then enough.
var nudgeAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

const (
	// emptyWrites is the largest number of empty Writes of a connection.
	emptyWrites = 1 + len(nudgeAfter)
	// emptyKey is the key in empty Writes: some hardware refuses 0.
	emptyKey = 1
)

// Initiated is called on the active side of a new connection.
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
	// If the queue is full, other messages will follow anyway.
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
