// SPDX-License-Identifier: BSD-3-Clause

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
	// closeLimit bounds the wait for the peer's answer to a disconnect.
	closeLimit = 3 * time.Second
	// drainLimit bounds the wait for the device to flush what was posted.
	drainLimit = 10 * time.Second
)

// kernelConn is an established connection or, for a UD QP, an answer that was sent or received. One
// goroutine watches it.
type kernelConn struct {
	end      *endpoint
	qp       *verbs.QP
	dev      kernelDevice
	ps       PortSpace
	local    kernelAddr
	remote   kernelAddr
	private  []byte
	ord, ird int
	peer     [2]int // the peer's ORD and IRD, -1 if not known
	datagram Datagram

	quit chan struct{} // closed by Close
	done chan struct{} // closed when the connection has ended and the QP is flushed
	gone chan struct{} // closed when the peer has answered, or need not answer
	idle chan struct{} // closed when the watcher returns

	mu       sync.Mutex
	cause    error // the first known reason
	ending   bool
	answered sync.Once
	closing  sync.Once
}

// arrived notifies the provider that the device has moved the QP to RTS, and sets the depths.
func (c *kernelConn) arrived() {
	moved(c.qp, verbs.QPStateRTS, nil)
	if l, ok := verbs.Ability[verbs.ProviderQPLimiter](c.qp.Provider()); ok {
		l.SetDepths(c.ord, c.ird)
	}
}

// start starts the watcher. failed is closed when the QP fails.
func (c *kernelConn) start(failed <-chan struct{}) {
	c.local, c.remote = c.end.where().ends(c.ps)
	c.quit, c.done, c.gone, c.idle = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	go c.watch(failed)
}

// watch waits for the end of the connection.
func (c *kernelConn) watch(failed <-chan struct{}) {
	defer close(c.idle)
	var late <-chan time.Time
	for {
		// Events are handled before the first wait too: the end of the connection may have arrived
		// together with an event awaited earlier, which used up the one token for both.
		for ev, ok := c.end.take(); ok; ev, ok = c.end.take() {
			c.handle(ev)
		}
		select {
		case <-c.end.wake:
		case <-failed:
			failed = nil
			if errors.Is(c.qpErr(), verbs.WCWRFlushErr) {
				late = time.After(c.dev.reasonLate)
			} else {
				c.finish(c.qpErr())
			}
		case <-late:
			c.finish(c.qpErr())
		case <-c.quit:
			return
		}
	}
}

// qpErr returns the reason for the failure of the QP.
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
		if err := c.qp.Err(); err != nil && !errors.Is(err, verbs.WCWRFlushErr) {
			cause = err // an iWARP QP that fails or is closed ends the stream, which causes this event
		}
		c.finish(cause)
		// This is the peer's disconnect request, or its answer. If both sides requested it, each
		// also answers.
		_ = c.end.call(rawID.disconnect)
		c.markGone()
	case EventTimewaitExit:
		c.finish(io.EOF)
		c.markGone()
	case EventDeviceRemoval:
		c.finish(eventError(ev.event, ev.status))
		c.markGone()
	case EventConnectError, EventUnreachable, EventRejected:
		// The peer did not receive the acceptance, or left before it could.
		c.finish(eventError(ev.event, ev.status))
		c.markGone()
	}
}

func (c *kernelConn) markGone() { c.answered.Do(func() { close(c.gone) }) }

// finish disconnects and returns when the connection has ended. The first call sets the reason.
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
		// There is no connection to end, and other IDs may use the QP.
		close(c.done)
		c.markGone()
		return
	}
	// The QP comes first: flushed requests then have the reason, and on InfiniBand nothing else
	// flushes them. A QP that has a reason keeps it.
	toError(c.qp, cause)
	_ = c.end.call(rawID.disconnect)
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	_ = c.qp.Drain(ctx) // if the QP is closed at the same time, its Close flushes
	cancel()
	close(c.done)
}

// Disconnect implements ProviderConn.
func (c *kernelConn) Disconnect() error {
	c.finish(verbs.ErrClosed)
	return nil
}

// CloseContext implements ProviderConn.
func (c *kernelConn) CloseContext(ctx context.Context) (err error) {
	c.finish(verbs.ErrClosed)
	c.closing.Do(func() {
		timer := time.NewTimer(closeLimit)
		defer timer.Stop()
		select {
		case <-c.gone:
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		}
		close(c.quit)
		<-c.idle
		c.end.destroy()
	})
	return err
}

// Done implements ProviderConn.
func (c *kernelConn) Done() <-chan struct{} { return c.done }

// Err implements ProviderConn. Failed completions can be polled before their reason has arrived
// here, so it asks the QP.
func (c *kernelConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = c.qp.Err()
		if c.dev.iwarp && c.cause == error(verbs.WCWRFlushErr) {
			c.cause = io.EOF // the device flushed the QP because the stream ended
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
