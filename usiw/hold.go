// SPDX-License-Identifier: BSD-3-Clause

package usiw

import "time"

// When each side may send its first message (RFC 5044 section 7.1.2, RFC 6581 section 5):
//
//	              active side                passive side
//	peer-to-peer  at once: the message that  held until that message arrives; Accept
//	              opens the connection       waits for it, for at most SetupTimeout
//	any other     at once                    held until a message arrives, for at most
//	                                         HoldTimeout
//
// During the hold the passive side sends nothing: posted requests wait in the send queue, as they
// do when the socket is full. It cannot owe a response either, because the peer's first FPDU ends
// the hold before it is handled. If the connection ends (a FIN, a Disconnect, an invalid first
// FPDU), the waiting requests are flushed, and only a Terminate can still be sent.
//
// On any other connection the RFC lets the passive side wait indefinitely, so that its messages
// cannot arrive before the peer has finished the exchange of frames and can receive messages. But
// if the peer's program only receives, as a program on Linux siw may, both sides would wait
// forever. A peer that has the Reply can soon receive messages, so HoldTimeout starts when TCP has
// acknowledged the Reply. Without this rule, a lost Reply could arrive together with a message,
// which siw does not handle (docs/interop.md). Until the acknowledgement arrives, PeerTimeout
// bounds the wait. A message from the peer ends the hold at once.

// acknowledger is a stream that can tell which data the peer has acknowledged.
type acknowledger interface {
	// settled returns how long ago the last acknowledgement arrived, once all written data are
	// acknowledged; it returns false if some are not.
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
	arrived := false // the peer is known to have received the Reply
	c.tx.holdTimer = time.AfterFunc(limit, func() {
		if c.holdOver(limit, &arrived) {
			c.kick()
		}
	})
}

// holdOver ends the hold if its time has passed; otherwise it restarts the timer. It sets arrived
// once the peer has received the Reply.
func (c *conn) holdOver(limit time.Duration, arrived *bool) bool {
	c.q.mu.Lock() // the stream stays open while mu is held and the connection is not dead
	defer c.q.mu.Unlock()
	if !c.tx.hold || c.dead.Load() {
		return false
	}
	if a, ok := c.s.(acknowledger); ok && !*arrived {
		var ago time.Duration
		rest := max(limit, time.Millisecond)
		// Only the first acknowledgement counts: a peer could repeat it forever.
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

// endHold ends the hold because a message from the peer arrived. The caller holds the receive role.
func (c *conn) endHold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.tx.hold {
		c.tx.hold = false
		c.rx.reply = true
	}
}
