// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"net"
	"time"
)

const (
	// closeTimeout bounds an orderly close: sending DISCONNECT, then receiving the peer's
	// DISCONNECT or the end of its connection.
	closeTimeout = 5 * time.Second
	// sentTimeout bounds how long Close waits for written data to be sent.
	sentTimeout = time.Second
)

// Close closes both directions. Data accepted by Write is sent first, followed by DISCONNECT; data
// that the peer sent and this side has not read is dropped. Close returns once everything is sent,
// or after 1 s, and finishes closing in the background: the underlying connection is closed when
// the peer answers or closes its own, or after a few seconds. SetLinger changes this behaviour.
// Pending calls fail with net.ErrClosed. A ReadFrom that is blocked in its reader retains the
// connection's memory until the reader returns.
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

// wait waits for done for at most d.
func wait(done <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// SetLinger sets what Close waits for. If sec is negative, the default, Close waits until written
// data is sent and finishes closing in the background while the process runs. If sec is 0, Close
// aborts the connection and unsent data is lost. If sec is positive, Close waits up to that many
// seconds for both sides to close; a program that exits after Close should use this.
func (c *Conn) SetLinger(sec int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return opError("set", c.local, c.remote, net.ErrClosed)
	}
	c.linger = sec
	return nil
}

// end closes the connection and releases everything.
func (c *Conn) end(abort bool) {
	defer close(c.ended)
	<-c.turn // never returned
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
	c.down = true // speak may be running
	c.mu.Unlock()
	// No caller is left to receive these errors. Handles that could not be closed stay in the table
	// of live objects.
	_ = c.res.closeQP()
	close(c.gone)
	c.rd.lock <- struct{}{}
	c.wr.lock <- struct{}{}
	c.unmap()
	_ = c.res.close()
}

// sayBye sends DISCONNECT, waits for the peer's, and closes the underlying connection. It drops
// whatever arrives in the meantime: with data left unread in the device, closing could reset an
// iWARP stream and lose data that this side sent.
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

// settle polls for completions until done reports true or ctx is done. The caller holds the turn
// and mu; mu is released while waiting.
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

// CloseWrite closes the write direction: the peer reads the remaining data, then io.EOF. Reads
// continue.
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
		c.wantBye = true // both directions are finished
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
	// The send queue is full. A Write in progress returns soon because wclosed is set.
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

// controlled reports whether SHUTDOWN or DISCONNECT has been sent or can no longer be sent. The
// caller holds mu.
func (c *Conn) controlled() bool { return c.down || c.saidBye || !c.wantShut && !c.wantBye }

// CloseRead closes the read direction on this side only: Reads return io.EOF, and arriving data is
// dropped. The peer is not notified.
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
