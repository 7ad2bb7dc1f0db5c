// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// A nudge is an RDMA Write of length 0, a message that does nothing. The active side of a
// peer-to-peer connection sends one after each of these times while it has not heard anything from
// the peer.
//
// Linux siw as the passive side sends its Reply first and has the socket tell it of data then.
// Messages that arrive in between, such as the one that opens the connection, lie there until
// others come (docs/interop.md). If the programs of both sides wait for the other one, that would
// be never.
//
// A peer that asks for CRC by itself gets no nudges: siw does not ask, another user-space RNIC
// does, and needs none.
var nudgeAfter = [...]time.Duration{250 * time.Millisecond, time.Second, 4 * time.Second}

// nudgeLater sets the timer of the first nudge.
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

// wantNudge queues a nudge. It reports false if the peer has been heard, or the connection has
// ended.
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
