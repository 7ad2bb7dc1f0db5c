// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"net"
	"sync"
)

// backlog is how many connections can wait for a listener to accept them. Further ones are refused.
const backlog = 1024

// listener is a net.Listener on a wire.
type listener struct {
	wire *Wire
	addr Addr

	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	waiting []*conn
	closed  bool
}

func newListener(w *Wire, addr Addr) *listener {
	l := &listener{wire: w, addr: addr}
	l.changed.L = &l.mu
	return l
}

// offer queues a connection for Accept. It reports false if the listener is closed or its queue is
// full.
func (l *listener) offer(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) == backlog {
		return false
	}
	l.waiting = append(l.waiting, c)
	l.changed.Signal()
	return true
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

// Close implements net.Listener. It cuts connections that have not been accepted.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.closed = true
	waiting := l.waiting
	l.waiting = nil
	l.changed.Broadcast()
	l.mu.Unlock()
	l.wire.remove(l)
	for _, c := range waiting {
		c.link.Cut()
	}
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }
