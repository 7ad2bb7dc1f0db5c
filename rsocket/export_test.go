// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import "time"

// Ended is closed once a closed connection has ended completely.
func Ended(c *Conn) <-chan struct{} { return c.ended }

// Gone is closed once the underlying connection has ended.
func Gone(c *Conn) <-chan struct{} { return c.gone }

// SetPatience sets how long closing a connection waits for the peer's answer.
func SetPatience(c *Conn, d time.Duration) { c.patience = d }

// Waiting reports whether a goroutine waits for completions of the connection, BothWaiting whether
// one waits in each direction.
func Waiting(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.driver != nil
}

func BothWaiting(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rd.waiting && c.wr.waiting
}

// Credit reports whether a message with data may be sent.
func Credit(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.credit()
}

// Full reports whether a Write waits for a grant of the peer.
func Full(c *Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wr.waiting && (c.out.known == 0 || !c.out.credit())
}

// Advance advances a connection's message numbers by n, as if that many more had been sent and read
// in each direction. Nothing may be in flight.
func Advance(c1, c2 *Conn, n uint16) {
	for _, c := range []*Conn{c1, c2} {
		c.mu.Lock()
		for _, number := range []*uint16{&c.in.granted, &c.in.received, &c.in.consumed, &c.in.due, &c.out.limit,
			&c.out.sent} {
			*number += n
		}
		c.mu.Unlock()
	}
}

// Sent returns how many messages each side has sent, modulo 65,536.
func Sent(c1, c2 *Conn) (n [2]uint16) {
	for i, c := range []*Conn{c1, c2} {
		c.mu.Lock()
		n[i] = c.out.sent
		c.mu.Unlock()
	}
	return n
}
