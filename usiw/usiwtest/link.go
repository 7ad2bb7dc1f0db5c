// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"cmp"
	"sync"
	"time"
)

// Link is one connection of a wire. All methods may be called concurrently.
type Link struct {
	// ToListener carries the bytes from the dialling side, ToDialer those from the listening side.
	ToListener, ToDialer *Direction

	dialer, listener *conn

	mu      sync.Mutex // guards the link, its directions and its two ends
	changed sync.Cond  // a waiting Read or Write must check its condition again
	reset   bool
}

func newLink(dialer, listener Addr, buffer int) *Link {
	l := &Link{}
	l.changed.L = &l.mu
	l.ToListener = newDirection(l, cmp.Or(buffer, DefaultBuffer))
	l.ToDialer = newDirection(l, cmp.Or(buffer, DefaultBuffer))
	l.dialer = &conn{link: l, local: dialer, remote: listener, in: l.ToDialer, out: l.ToListener}
	l.listener = &conn{link: l, local: listener, remote: dialer, in: l.ToListener, out: l.ToDialer}
	return l
}

// Delay delays the bytes of both directions by t; see Direction.Delay.
func (l *Link) Delay(t time.Duration) { l.both(func(d *Direction) { d.Delay(t) }) }

// Split makes every Read on either side return at most n bytes (0 removes the limit).
func (l *Link) Split(n int) { l.both(func(d *Direction) { d.Split(n) }) }

// Stall keeps both sides from receiving bytes until Resume, as on a network that loses all packets.
// No bytes are lost, because TCP would retransmit them.
func (l *Link) Stall() { l.both((*Direction).Stall) }

// Resume ends a Stall.
func (l *Link) Resume() { l.both((*Direction).Resume) }

func (l *Link) both(f func(*Direction)) {
	f(l.ToListener)
	f(l.ToDialer)
}

// Cut resets the connection: unread bytes are lost, and reads and writes on both sides fail with
// ECONNRESET.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

// cut is Cut for a caller that holds l.mu.
func (l *Link) cut() {
	l.reset = true
	l.ToListener.drop()
	l.ToDialer.drop()
	l.changed.Broadcast()
}
