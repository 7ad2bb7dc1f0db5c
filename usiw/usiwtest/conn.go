// SPDX-License-Identifier: BSD-3-Clause

package usiwtest

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is one end of a Link: a net.Conn that behaves like a TCP socket.
type conn struct {
	link          *Link
	local, remote Addr
	in, out       *Direction

	// Guarded by link.mu.
	closed         bool
	readBy, sentBy deadline
}

// opError wraps err as package net does.
func (c *conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	n, err := c.readLocked(b)
	return n, c.opError("read", err)
}

func (c *conn) readLocked(b []byte) (int, error) {
	for {
		if err := c.usable("read", &c.readBy); err != nil || len(b) == 0 {
			return 0, err
		}
		if n, err := c.in.take(b); n > 0 || err != nil {
			return n, err
		}
		c.link.changed.Wait()
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	n, err := c.writeLocked(b)
	return n, c.opError("write", err)
}

func (c *conn) writeLocked(b []byte) (n int, err error) {
	for {
		if err := c.usable("write", &c.sentBy); err != nil {
			return n, err
		}
		if c.out.fin {
			return n, os.NewSyscallError("write", syscall.EPIPE)
		}
		if n == len(b) {
			return n, nil
		}
		if c.out.gone {
			// The reader has closed its end: the peer's host answers with a reset.
			c.link.cut()
			continue
		}
		if k := c.out.put(b[n:]); k > 0 {
			n += k
			continue
		}
		c.link.changed.Wait()
	}
}

// usable returns the error of an operation on this end, or nil if the operation can continue. The
// caller holds link.mu.
func (c *conn) usable(op string, d *deadline) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case d.passed:
		return os.ErrDeadlineExceeded
	case c.link.reset:
		return os.NewSyscallError(op, syscall.ECONNRESET)
	}
	return nil
}

// CloseWrite ends the stream to the peer, which reads io.EOF after the bytes already written.
func (c *conn) CloseWrite() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	if c.link.reset {
		return c.opError("close", os.NewSyscallError("shutdown", syscall.ENOTCONN))
	}
	c.out.finish()
	return nil
}

// Close implements net.Conn. As with a socket, it resets the connection if there are unread bytes,
// or later if the peer writes afterwards. Otherwise the peer still receives the bytes written
// earlier.
func (c *conn) Close() error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	c.readBy.set(c.link, time.Time{})
	c.sentBy.set(c.link, time.Time{})
	if c.in.queued > 0 {
		c.link.cut()
	}
	c.in.gone = true
	c.out.finish()
	c.link.changed.Broadcast()
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy, &c.sentBy) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readBy) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.sentBy) }

func (c *conn) setDeadlines(t time.Time, ds ...*deadline) error {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range ds {
		d.set(c.link, t)
	}
	return nil
}

// deadline is a read or write deadline. It is guarded by the link's mu.
type deadline struct {
	timer  *time.Timer // nil = no deadline
	passed bool
}

// set replaces the deadline, including that of operations in progress; the zero time means no
// deadline.
func (d *deadline) set(l *Link, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.passed = !t.IsZero() && !time.Now().Before(t)
	if !t.IsZero() && !d.passed {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			// Another deadline may have been set after this timer fired.
			if d.timer == timer {
				d.passed = true
				l.changed.Broadcast()
			}
		})
		d.timer = timer
	}
	l.changed.Broadcast()
}
