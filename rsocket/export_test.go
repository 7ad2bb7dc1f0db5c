// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import "time"

// Ended is closed when a connection that was closed has ended completely.
func Ended(c *Conn) <-chan struct{} { return c.ended }

// Gone is closed when the connection below has ended.
func Gone(c *Conn) <-chan struct{} { return c.gone }

// SetPatience sets how long the end of a connection waits for the peer's answer.
func SetPatience(c *Conn, d time.Duration) { c.patience = d }

// Waiting reports whether a goroutine waits for completions of the connection, BothWaiting whether one waits in each direction.
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
