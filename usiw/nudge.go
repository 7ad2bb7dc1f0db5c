// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// A nudge is an RDMA Write of length 0, a message without effect. While the peer is silent, the
// active side of a peer-to-peer connection sends one after each of these times.
//
// A passive Linux siw sends its Reply before it starts to listen for data on the socket. Messages
// that arrive in between, such as the one that opens the connection, stay unread until more data
// arrive (docs/interop.md). If each program waits for the other, that never happens.
//
// A peer that asks for CRC of its own accord gets no nudges: it is not siw, which does not ask, but
// another user-space RNIC, which does not need them.
var nudgeAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

// nudgeLater starts the timer for the first nudge.
func (c *conn) nudgeLater() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.dead.Load() {
		return
	}
	next := 1
	c.tx.nudgeTimer = time.AfterFunc(nudgeAfter[0], func() {
		if !c.wantNudge() {
			return
		}
		c.kick()
		if next < len(nudgeAfter) {
			c.q.mu.Lock()
			defer c.q.mu.Unlock()
			if !c.dead.Load() {
				c.tx.nudgeTimer.Reset(nudgeAfter[next])
				next++
			}
		}
	})
}

// wantNudge queues a nudge. It reports false if a message from the peer has arrived or the
// connection has ended.
func (c *conn) wantNudge() bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	select {
	case <-c.spoken:
		return false
	default:
	}
	c.tx.nudge = !c.dead.Load()
	return c.tx.nudge
}

// sendNudge builds a nudge.
func (c *conn) sendNudge(b *batch) {
	ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpWrite), STag: rtrSTag}.Put(b.begin(ddp.TaggedLen, ddp.TaggedLen))
	c.sealed(b)
	c.tx.task = taskNone
}
