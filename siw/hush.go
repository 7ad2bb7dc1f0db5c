// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"sync"
	"sync/atomic"
	"time"
)

// A connection whose CQ is polled without pause is read by the poller. If its reader were woken for everything that
// arrives, too, that would take a second processor and disturb the first. So the stream is hushed after hushPolls polls
// within hushPeriod, for as long as that many come within each period, and until somebody arms a CQ of the connection in
// order to sleep. A program that stops to poll is missed after two periods at most: nothing ever depends on it.
const (
	hushPolls  = 64
	hushPeriod = time.Millisecond
	hushOctets = 1 << 20 // so much wakes the reader all the same: then there is work for both
)

// hush keeps the stream of a connection quiet while it is polled.
type hush struct {
	polls atomic.Uint32 // since the last look
	quiet atomic.Bool   // changes under mu

	mu    sync.Mutex // guards what follows and the calls of stream.hush; nothing is locked below it
	since time.Time  // of the last look
	timer *time.Timer
	over  bool // the connection has ended
}

// polled counts a poll that finds nothing ready, and hushes the stream when there are many.
func (c *conn) polled() {
	h := &c.hush
	if h.polls.Add(1) < hushPolls || h.quiet.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	often := now.Sub(h.since) < hushPeriod
	h.since = now
	h.polls.Store(0)
	if !often || h.over || h.quiet.Load() || !c.s.hush(hushOctets) {
		return
	}
	h.quiet.Store(true)
	if h.timer == nil {
		h.timer = time.AfterFunc(hushPeriod, c.stillPolled)
	} else {
		h.timer.Reset(hushPeriod)
	}
}

// stillPolled ends the quiet if fewer polls have come.
func (c *conn) stillPolled() {
	h := &c.hush
	h.mu.Lock()
	often := h.polls.Swap(0) >= hushPolls
	if often && h.quiet.Load() {
		h.timer.Reset(hushPeriod)
	}
	h.mu.Unlock()
	if !often {
		c.unhush()
	}
}

// unhush ends the quiet, if there is one, and receives what came in it, which the stream need not announce again.
func (c *conn) unhush() {
	if c.hush.lift(c.s) {
		c.receive()
	}
}

// lift ends the quiet; it reports false if there was none.
func (h *hush) lift(s stream) bool {
	if !h.quiet.Load() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.quiet.Load() {
		return false
	}
	h.timer.Stop()
	h.polls.Store(0)
	h.quiet.Store(false)
	s.hush(1)
	return true
}

// stop ends it for good.
func (h *hush) stop(s stream) {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.lift(s)
}
