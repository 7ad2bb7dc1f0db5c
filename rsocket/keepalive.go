// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// keepalive monitors a connection that no goroutine is waiting on. It polls for completions
// periodically. If the peer has been silent since the last check, it sends an empty Write, which
// fails once the peer is gone.
type keepalive struct {
	heard atomic.Bool // a message arrived since the last tick

	mu      sync.Mutex // guards the fields below
	c       *Conn
	period  time.Duration // 0 or less disables keep-alive
	timer   *time.Timer
	stopped bool
}

func (k *keepalive) start(c *Conn) {
	k.mu.Lock()
	k.c = c
	k.mu.Unlock()
	k.set(c.res.cfg.KeepAlive)
}

// set changes the period.
func (k *keepalive) set(period time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.period = period
	switch {
	case k.stopped:
	case k.timer != nil && period > 0:
		k.timer.Reset(period)
	case k.timer != nil:
		k.timer.Stop()
	case period > 0:
		k.timer = time.AfterFunc(period, k.tick)
	}
}

func (k *keepalive) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	if k.timer != nil {
		k.timer.Stop()
	}
}

// tick is called by the timer.
func (k *keepalive) tick() {
	k.c.look()
	if !k.heard.Swap(false) {
		k.c.mu.Lock()
		k.c.poke()
		k.c.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.stopped && k.period > 0 {
		k.timer.Reset(k.period)
	}
}

// look processes the available completions, unless another goroutine holds the turn.
func (c *Conn) look() {
	select {
	case <-c.turn:
	default:
		return
	}
	for more := true; more; {
		n, err := c.res.cq.Poll(c.wcs[:])
		c.mu.Lock()
		c.process(c.wcs[:n])
		if err != nil {
			c.fail(err)
		}
		c.mu.Unlock()
		more = n == len(c.wcs)
	}
	c.turn <- struct{}{}
}

// SetKeepAlive enables keep-alive with the period of Config.KeepAlive, or DefaultKeepAlive if that
// is disabled, or disables it.
func (c *Conn) SetKeepAlive(on bool) error {
	period := c.res.cfg.KeepAlive
	switch {
	case !on:
		period = None
	case period <= 0:
		period = DefaultKeepAlive
	}
	return c.setKeepAlive(period)
}

// SetKeepAlivePeriod enables keep-alive with the given period.
func (c *Conn) SetKeepAlivePeriod(d time.Duration) error {
	if d <= 0 {
		return opError("set", c.local, c.remote, invalid("keep-alive period %v", d))
	}
	return c.setKeepAlive(d)
}

func (c *Conn) setKeepAlive(d time.Duration) error {
	select {
	case <-c.closing:
		return opError("set", c.local, c.remote, net.ErrClosed)
	default:
	}
	c.alive.set(d)
	return nil
}
