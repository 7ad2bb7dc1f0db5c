// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"net"
	"time"
)

const (
	// closeTimeout bounds the orderly end: DISCONNECT has left, the peer's DISCONNECT or the end of
	// its connection has come.
	closeTimeout = 5 * time.Second
	// sentTimeout is how long Close waits until what was written has left.
	sentTimeout = time.Second
)

// Close ends both directions. Everything that Write has taken goes to the peer first, and then
// DISCONNECT; what the peer has sent and this side has not read is dropped. Close returns when all
// of it has left (at most after 1 s), and the rest of the end goes on in the background: the
// connection below ends when the peer has answered or ended its own, at most after some seconds.
// SetLinger changes that. Calls in progress fail with net.ErrClosed; a ReadFrom that waits for its
// reader keeps the memory of the connection until the reader returns.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return opError("close", c.local, c.remote, net.ErrClosed)
	}
	c.closed = true
	linger := c.linger
	close(c.closing)
	c.wakeReady()
	c.mu.Unlock()
	c.shown.Store(uint32(stageClosed))
	c.interrupt()
	c.alive.stop()
	c.rd.deadline.stop()
	c.wr.deadline.stop()
	go c.end(linger == 0)
	switch {
	case linger == 0:
		<-c.gone
	case linger < 0:
		wait(c.sent, sentTimeout)
	default:
		wait(c.gone, time.Duration(linger)*time.Second)
	}
	return nil
}

// wait waits for done, at most for d.
func wait(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// SetLinger says what Close waits for. With a negative number, the default, it waits until what was
// written has left, and the rest of the end goes on in the background, as long as the process runs.
// With 0 it ends the connection at once, and what has not left is lost. With another number it
// waits up to so many seconds until the connection has ended on both sides; a program that ends
// after Close should use that.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return opError("set", c.local, c.remote, net.ErrClosed)
	}
	c.linger = sec
	return nil
}

// end ends the connection and closes everything.
func (c *Conn) end(abort bool) {
	defer close(c.ended)
	<-c.turn // for good
	if abort {
		close(c.sent)
		_ = c.id.Abort()
	} else {
		c.sayBye()
	}
	if c.hushEnd != nil {
		c.hushEnd.Stop()
	}
	c.mu.Lock()
	c.down = true // speak may be on its way
	c.mu.Unlock()
	// Errors of the end concern nobody any more: handles that could not be closed stay in the table
	// of live objects.
	_ = c.res.closeQP()
	close(c.gone)
	c.rd.lock <- struct{}{}
	c.wr.lock <- struct{}{}
	c.unmap()
	_ = c.res.close()
}

// sayBye sends DISCONNECT, waits for the peer's, and ends the connection below. What arrives
// meanwhile is dropped: if data were left in the device, the end could reset the stream of an iWARP
// device and lose what was sent.
func (c *Conn) sayBye() {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	c.mu.Lock()
	c.wantBye = true
	c.sendControl()
	c.settle(ctx, func() bool { return c.down || c.saidBye && c.queue.count == 0 })
	close(c.sent)
	c.settle(ctx, func() bool { return c.down || c.peerGone })
	c.mu.Unlock()
	_ = c.id.Close()
}

// settle takes completions until done, or until ctx is done. The caller has the turn and holds mu,
// which is released during waits.
func (c *Conn) settle(ctx context.Context, done func() bool) {
	for !done() {
		c.mu.Unlock()
		n, err := c.res.cq.Wait(ctx, c.wcs[:])
		c.mu.Lock()
		c.process(c.wcs[:n])
		if err != nil {
			return
		}
	}
}

// CloseWrite ends the direction to the peer, which reads to io.EOF; Reads go on.
func (c *Conn) CloseWrite() error {
	return opError("close", c.local, c.remote, c.closeWrite())
}

func (c *Conn) closeWrite() error {
	c.mu.Lock()
	switch {
	case c.closed:
		c.mu.Unlock()
		return net.ErrClosed
	case c.wclosed:
		c.mu.Unlock()
		return nil
	case c.down && !c.peerGone:
		defer c.mu.Unlock()
		return c.reset()
	}
	c.wclosed = true
	if c.in.ended || c.rclosed {
		c.wantBye = true // this side does nothing any more
	} else {
		c.wantShut = true
	}
	c.sendControl()
	c.wakeReady()
	sent := c.controlled()
	c.mu.Unlock()
	if sent {
		return nil
	}
	// The send queue is full. A Write in progress leaves soon, because of wclosed.
	if err := c.enter(&c.wr); err != nil {
		return err
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wr.ready = c.controlled
	defer func() { c.wr.ready = c.writable }()
	return c.await(&c.wr)
}

// controlled reports whether SHUTDOWN or DISCONNECT has been sent, or cannot be. The caller holds
// mu.
func (c *Conn) controlled() bool { return c.down || c.saidBye || !c.wantShut && !c.wantBye }

// CloseRead ends the direction from the peer for this side: Reads return io.EOF, and what arrives
// is dropped. The peer is not told.
func (c *Conn) CloseRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return opError("close", c.local, c.remote, net.ErrClosed)
	}
	if c.rclosed {
		return nil
	}
	c.rclosed = true
	c.in.consume(c.in.unread)
	if c.wclosed {
		c.wantBye = true
	}
	c.sendControl()
	c.wakeReady()
	return nil
}
