// SPDX-License-Identifier: BSD-3-Clause

package siwtest

import (
	"cmp"
	"sync"
)

// Link is one connection of a wire. All methods may be called concurrently.
type Link struct {
	// ToListener carries the bytes of the side that dialled, ToDialer those of the side that listened.
	ToListener, ToDialer *Direction

	dialer, listener *conn

	mu      sync.Mutex // guards the link, its directions and its two ends
	changed sync.Cond  // a waiting Read or Write has to check its condition again
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

// Cut resets the connection: unread bytes are lost, and reads and writes of both sides fail with ECONNRESET.
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
