// SPDX-License-Identifier: BSD-3-Clause

package siw

import "time"

// Who may speak first (RFC 5044 section 7.1.2, RFC 6581 section 5):
//
//	                   active side                  passive side
//	peer-to-peer       at once: the message that    held until that is in. Accept waits for it, and
//	                   opens the connection         SetupTimeout bounds it
//	any other          at once                      held until a message is in, for HoldTimeout at most
//
// A held side sends nothing, whatever is posted: requests wait in the send queue, as they do for room in the socket. It owes
// nothing either, since the first FPDU of the peer's ends the hold before it is looked at. What ends the connection (a FIN, a
// Disconnect, a first FPDU that is none) flushes what waits, and only a Terminate can still be sent.
//
// The RFC lets the passive side of any other connection wait for ever, so that its messages cannot come before the peer has gone
// over from the exchange of frames to receiving messages. But where the peer's program only listens, as that of a Linux siw may,
// both would. A peer that has the Reply goes over soon. So the time counts from when TCP has acknowledged the Reply: one that
// was lost, and a message, which then come together, would be too much for siw (docs/interop.md). Until then PeerTimeout bounds
// the wait. A message of the peer's during the hold ends it at once.

// acknowledger is a stream that knows what has reached the peer.
type acknowledger interface {
	// settled returns for how long everything that was written has been acknowledged, and false if something has not.
	settled() (time.Duration, bool)
}

// limitHold ends the hold of a connection that is not peer-to-peer at HoldTimeout.
func (c *conn) limitHold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.tx.hold || c.rtr || c.dead.Load() {
		return
	}
	limit := c.dev.cfg.HoldTimeout
	arrived := false // the Reply, as far as is known
	c.tx.holdTimer = time.AfterFunc(limit, func() {
		if c.holdOver(limit, &arrived) {
			c.kick()
		}
	})
}

// holdOver ends the hold if its time is over, and has it looked at again later if not. arrived notes that the Reply has.
func (c *conn) holdOver(limit time.Duration, arrived *bool) bool {
	c.q.mu.Lock() // also for the look at the stream, which is open as long as the connection is not dead
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

// endHold ends the hold because the peer has spoken. The caller holds the receive role.
func (c *conn) endHold() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.tx.hold {
		c.tx.hold = false
		c.rx.reply = true
	}
}
