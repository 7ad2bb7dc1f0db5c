// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

const (
	// closeLimit bounds the wait for a peer's answer to the end of a connection.
	closeLimit = 3 * time.Second
	// eventLimit bounds the wait for the reason of a flush.
	eventLimit = 2 * time.Second
	// drainLimit bounds the wait for the device to flush what was posted.
	drainLimit = 10 * time.Second
)

// kernelConn is an established connection, or for a UD QP an answer that was given or received. One goroutine watches it.
type kernelConn struct {
	end      *endpoint
	qp       *verbs.QP
	dev      kernelDevice
	ps       PortSpace
	local    kernelAddr
	remote   kernelAddr
	private  []byte
	ord, ird int
	peer     [2]int // the peer's ORD and IRD, as far as it is known
	datagram Datagram

	quit chan struct{} // closed by Close
	done chan struct{} // closed when the connection has ended and the QP is flushed
	gone chan struct{} // closed when the peer has answered, or need not
	idle chan struct{} // closed when the watcher has ended

	mu       sync.Mutex
	cause    error // the first reason that is known
	ending   bool
	answered sync.Once
	closing  sync.Once
}

// arrived tells the provider that the device has moved the QP to RTS, and with what depths.
func (c *kernelConn) arrived() {
	moved(c.qp, verbs.QPStateRTS, nil)
	if l, ok := verbs.Ability[verbs.ProviderQPLimiter](c.qp.Provider()); ok {
		l.SetDepths(c.ord, c.ird)
	}
}

// start begins to watch. failed is the QP's.
func (c *kernelConn) start(failed <-chan struct{}) {
	c.local, c.remote = c.end.where().ends(c.ps)
	c.quit, c.done, c.gone, c.idle = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	go c.watch(failed)
}

// watch waits for the end, from whatever side it comes.
func (c *kernelConn) watch(failed <-chan struct{}) {
	defer close(c.idle)
	var late <-chan time.Time
	for {
		select {
		case <-c.end.wake:
		case <-failed:
			failed = nil
			if errors.Is(c.qpErr(), verbs.WCWRFlushErr) {
				// Kernel siw flushes when the stream has ended, and the event that says how is on its way.
				late = time.After(eventLimit)
			} else {
				c.finish(c.qpErr())
			}
		case <-late:
			c.finish(c.qpErr())
		case <-c.quit:
			return
		}
		for ev, ok := c.end.take(); ok; ev, ok = c.end.take() {
			c.handle(ev)
		}
	}
}

// qpErr is the reason for which the QP failed.
func (c *kernelConn) qpErr() error {
	if err := c.qp.Err(); err != nil {
		return err
	}
	return verbs.ErrClosed
}

func (c *kernelConn) handle(ev rawEvent) {
	switch ev.event {
	case EventDisconnected:
		cause := error(io.EOF)
		if ev.status != 0 {
			cause = eventError(ev.event, ev.status)
		}
		c.finish(cause)
		// The answer, if it was not the question: where both sides have asked, each answers too.
		_ = c.end.call(rawID.disconnect)
		c.markGone()
	case EventTimewaitExit:
		c.finish(io.EOF)
		c.markGone()
	case EventDeviceRemoval:
		c.finish(eventError(ev.event, ev.status))
		c.markGone()
	case EventConnectError, EventUnreachable, EventRejected:
		// The peer has not heard of our acceptance, or has left before it could.
		c.finish(eventError(ev.event, ev.status))
		c.markGone()
	}
}

func (c *kernelConn) markGone() { c.answered.Do(func() { close(c.gone) }) }

// finish ends the connection, for the first reason that is given, and returns when that is done.
func (c *kernelConn) finish(cause error) {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.ending = true
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	if c.ps == PortSpaceUDP {
		// There is nothing to end on the wire, and the QP may have other correspondents.
		close(c.done)
		c.markGone()
		return
	}
	// The QP first: what is flushed finds the reason, and InfiniBand flushes nothing by itself. A QP that has one keeps it.
	toError(c.qp, cause)
	_ = c.end.call(rawID.disconnect)
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	_ = c.qp.Drain(ctx) // of a QP that is closed meanwhile Close takes care
	cancel()
	close(c.done)
}

// Disconnect implements ProviderConn.
func (c *kernelConn) Disconnect() error {
	c.finish(verbs.ErrClosed)
	return nil
}

// Close implements ProviderConn.
func (c *kernelConn) Close() error {
	c.finish(verbs.ErrClosed)
	c.closing.Do(func() {
		timer := time.NewTimer(closeLimit)
		defer timer.Stop()
		select {
		case <-c.gone:
		case <-timer.C:
		}
		close(c.quit)
		<-c.idle
		c.end.destroy()
	})
	return nil
}

// Done implements ProviderConn.
func (c *kernelConn) Done() <-chan struct{} { return c.done }

// Err implements ProviderConn. Completions with errors can be polled before their reason has come here, so the QP is asked.
func (c *kernelConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = c.qp.Err()
		if c.dev.iwarp && c.cause == error(verbs.WCWRFlushErr) {
			c.cause = io.EOF // flushed by the device, of which nobody here has asked it: the stream has ended
		}
	}
	return c.cause
}

// LocalAddr implements ProviderConn.
func (c *kernelConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements ProviderConn.
func (c *kernelConn) RemoteAddr() net.Addr { return c.remote }

// PrivateData implements ProviderConn.
func (c *kernelConn) PrivateData() []byte { return c.private }

// Depths implements ProviderConn.
func (c *kernelConn) Depths() (ord, ird int) { return c.ord, c.ird }

// PeerDepths implements ProviderConn.
func (c *kernelConn) PeerDepths() (ord, ird int) { return c.peer[0], c.peer[1] }
