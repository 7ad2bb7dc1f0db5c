// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "time"

// When each side may send its first message (RFC 5044 section 7.1.2, RFC 6581 section 5):
//
//	                   active side                  passive side
//	peer-to-peer       at once: the message that    held until that message has arrived. Accept waits for it,
//	                   opens the connection         and SetupTimeout bounds the wait
//	any other          at once                      held until a message has arrived, for HoldTimeout at most
//
// During the hold the passive side sends nothing: posted requests wait in the send queue, as they
// do when the socket is full. It owes no answer either, because the peer's first FPDU ends the hold
// before it is handled. If the connection ends (a FIN, a Disconnect, a first FPDU that is not
// valid), the waiting requests are flushed, and only a Terminate can still be sent.
//
// For any other connection the RFC lets the passive side wait without limit, so that its messages
// cannot arrive before the peer has finished the exchange of frames and receives messages. But if
// the peer's program only receives, as that of a Linux siw may, both sides would wait for ever. A
// peer that has the Reply soon receives messages, so the time starts when TCP has acknowledged the
// Reply. Without that, a Reply that was lost could arrive together with a message, which siw does
// not handle (docs/interop.md). Until the acknowledgement PeerTimeout bounds the wait. A message
// from the peer ends the hold at once.

// acknowledger is a stream that knows which data the peer has acknowledged.
type acknowledger interface {
	// settled returns for how long all written data have been acknowledged; false if some have not.
	settled() (time.Duration, bool)
}

// limitHold ends the hold of a connection that is not peer-to-peer after HoldTimeout.
func (c *conn) limitHold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.tx.hold || c.rtr || c.dead.Load() {
		return
	}
	limit := c.dev.cfg.HoldTimeout
	arrived := false // the peer is known to have the Reply
	c.tx.holdTimer = time.AfterFunc(limit, func() {
		if c.holdOver(limit, &arrived) {
			c.kick()
		}
	})
}

// holdOver ends the hold if its time is over; otherwise it sets the timer again. It sets arrived
// when the peer has the Reply.
func (c *conn) holdOver(limit time.Duration, arrived *bool) bool {
	c.q.mu.Lock() // under it the stream is open while the connection is not dead
	defer c.q.mu.Unlock()
	if !c.tx.hold || c.dead.Load() {
		return false
	}
	if a, ok := c.s.(acknowledger); ok && !*arrived {
		var ago time.Duration
		rest := max(limit, time.Millisecond)
		// Only the first acknowledgement counts: a peer could repeat it for ever.
		if ago, *arrived = a.settled(); *arrived {
			rest = limit - ago
		}
		if rest > 0 {
			c.tx.holdTimer.Reset(rest)
			return false
		}
	}
	c.tx.hold = false
	return true
}

// endHold ends the hold because a message from the peer has arrived. The caller holds the receive
// role.
func (c *conn) endHold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.tx.hold {
		c.tx.hold = false
		c.rx.reply = true
	}
}
