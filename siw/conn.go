// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/siw/mpa"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// conn is an established connection of a QP. See the package comment for its roles and its end. Fields below a role's
// name belong to whoever holds that role; fields marked mu are guarded by q.mu.
type conn struct {
	q       *qp
	dev     *device
	s       stream
	crc     bool
	ord     int // our Reads and atomics in progress
	ird     int // the peer's, as agreed
	serve   int // of the peer's, the most that we take: what it was told, which may be more
	peer    depths
	private []byte
	rtr     bool // the peer opens the connection with a message of its own
	markOut bool // the peer wants markers
	markIn  bool // the peer sends markers

	dead    atomic.Bool    // set under mu once; nothing new begins
	workers sync.WaitGroup // the goroutine that waits for room, the reader of a watch of its own
	spoken  chan struct{}  // closed when the peer's first FPDU has been handled
	flushed chan struct{}  // closed when the connection has let go of all memory and everything is flushed
	gone    chan struct{}  // closed when the stream is closed too

	idle     *time.Timer   // looks for signs of life; nil without IdleTimeout
	received atomic.Uint64 // bytes, for idle

	reason *time.Timer // mu; gives up waiting for the reason of a failure; nil = nobody waits

	term  *termination // mu; the Terminate to send at the end
	cause error        // mu; why the connection ended

	watched *watch      // who is woken for what arrives; guarded by device.watching
	atEOF   atomic.Bool // nothing more will arrive

	tx sender
	rx receiver
}

// setup is what the two sides have agreed on.
type setup struct {
	crc      bool
	ord, ird int
	serve    int    // how many of the peer's requests we take at a time
	peer     depths // what the peer has said, -1 if nothing
	hold     bool   // we are the responder, and the peer is to speak first; see hold.go
	rtr      bool   // what it sends first only opens the connection (RFC 6581 section 5)
	markOut  bool   // markers in what we send
	markIn   bool   // markers in what the peer sends
	private  []byte // the peer's private data

	opening  []byte      // what we have sent to open the connection
	openedBy RTRMessages // RTRRead or RTRSend if that has used up a message number
}

// newConn makes q's connection out of a stream whose MPA frames have been exchanged, and starts it.
func newConn(q *qp, nc net.Conn, agreed setup) (*conn, error) {
	s, err := newStream(untapped(nc), q.dev.cfg.PeerTimeout)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &conn{q: q, dev: q.dev, s: s, crc: agreed.crc, ord: agreed.ord, ird: agreed.ird, serve: agreed.serve, peer: agreed.peer, private: agreed.private, rtr: agreed.rtr,
		markOut: agreed.markOut, markIn: agreed.markIn, spoken: make(chan struct{}), flushed: make(chan struct{}), gone: make(chan struct{})}
	c.tx.init(q, &agreed)
	c.size()
	c.rx.init(q, &agreed)
	c.tx.stall.c, c.rx.stall.c = c, c
	if err = q.connect(c); err != nil {
		s.interrupt()
		s.drainAndClose(nil, time.Now())
		q.dev.untrack(c)
		close(c.gone)
		return nil, err
	}
	c.watchIdle()
	c.limitHold()
	return c, nil
}

// watchIdle ends the connection when nothing has moved for IdleTimeout. It tells the peer, if that is there, that it is not an
// orderly end (RFC 5040 section 7.1).
func (c *conn) watchIdle() {
	limit := c.dev.cfg.IdleTimeout
	if limit == 0 {
		return
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	received, sent := c.received.Load(), c.tx.sentTo
	c.idle = time.AfterFunc(limit, func() {
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		if c.dead.Load() {
			return
		}
		if now, out := c.received.Load(), c.tx.sentTo; now != received || out != sent {
			received, sent = now, out
			c.idle.Reset(limit)
			return
		}
		t := &termination{fault: faultLocal}
		c.failLocked(fmt.Errorf("nothing has moved for %v: %w: %w", limit, syscall.ETIMEDOUT, t.err()), t)
	})
}

// fail ends the connection for the first reason that is given; t is the Terminate to send, nil for none. It does not wait.
func (c *conn) fail(cause error, t *termination) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.failLocked(cause, t)
}

// The kernel tells only one call why a stream has failed, and all later writes EPIPE. Who has been told the reason may come
// to broken after them, but not this much later.
const reasonDelay = 100 * time.Millisecond

// broken ends the connection because its stream has failed. It does not wait, not for the reason either: the caller may hold a
// role, and with it keep a poller from all its connections.
func (c *conn) broken(err error) {
	switch {
	case err == errStalled:
		err = fmt.Errorf("peer has taken no data for %v: %w", c.dev.cfg.PeerTimeout, syscall.ETIMEDOUT)
	case err == errBroken, errors.Is(err, syscall.EPIPE):
		c.q.mu.Lock()
		defer c.q.mu.Unlock()
		if c.reason == nil && !c.dead.Load() {
			c.reason = time.AfterFunc(reasonDelay, func() { c.fail(err, nil) })
		}
		return
	}
	c.fail(err, nil)
}

// failLocked is fail for a caller that holds q.mu.
func (c *conn) failLocked(cause error, t *termination) {
	if c.dead.Load() {
		return
	}
	if c.tx.last != nil { // a message was refused before, and only answers had to go first
		cause, t = c.tx.last.err(), c.tx.last
	}
	c.cause, c.term = cause, t
	c.q.state, c.q.cause, c.q.flushed = verbs.QPStateErr, cause, c.flushed
	c.dead.Store(true)
	go c.end()
}

// failRequest ends the connection because of a local error in a request. The caller holds q.mu.
func (c *conn) failRequest(e *sendEntry, status verbs.WCStatus) {
	e.status = status
	t := &termination{fault: faultLocal}
	c.failLocked(fmt.Errorf("send request %d: %w: %w", e.id, status, t.err()), t)
}

// refuse ends the connection because of a fault in a message of the peer's. Nothing that comes behind it is looked at. The
// answers that are owed for earlier messages go out before the Terminate, so that the peer knows what has been done; a peer
// that does not take them within CloseTimeout goes without. The caller holds the receive role.
func (c *conn) refuse(f fault, ulpdu []byte) {
	t := terminationOf(f, ulpdu)
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.tx.busy && !c.tx.blocked && c.tx.responses.len() == 0 || c.dead.Load() {
		c.failLocked(t.err(), t)
		return
	}
	c.rx.refused, c.rx.reply = true, true
	c.tx.last = t
	c.tx.grace = time.AfterFunc(c.dev.cfg.CloseTimeout, func() { c.fail(t.err(), t) })
}

// end takes the connection down. The order is what keeps promises: no memory is touched once a completion says so, the
// Terminate follows whole FPDUs only, and the stream is closed in a way that does not take back what was sent.
func (c *conn) end() {
	c.dev.endWatch(c)
	c.s.interrupt()
	c.workers.Wait()

	// Both roles are taken for good. Holders leave them quickly: neither ever waits, and both look at dead.
	c.rx.mu.Lock()
	c.q.mu.Lock()
	for c.tx.busy {
		c.tx.idle.Wait()
	}
	c.tx.busy = true
	tail := c.tx.cut(&c.dev.stalls)
	severed := c.tx.severed
	paid := int64(len(tail))
	if paid <= smallPart {
		paid = 0
	}
	whole := !severed && c.dev.stalls.reserveTail(paid)
	if !whole {
		tail, paid = nil, 0
	}
	c.letGo()
	if c.term != nil && whole {
		tail = c.appendTerminate(tail)
	}
	for _, timer := range []*time.Timer{c.idle, c.tx.grace, c.tx.holdTimer, c.reason} {
		if timer != nil {
			timer.Stop()
		}
	}
	c.rx.flush(c.q)
	c.q.flush()
	if ev, ok := c.event(c.cause); ok {
		c.q.ctx.post(ev)
	}
	close(c.flushed) // under q.mu: a request that is posted from here on is flushed by its poster
	c.q.mu.Unlock()
	c.rx.mu.Unlock()

	c.tap(c.tapTime(), true, [][]byte{tail}, len(tail))
	var deadline time.Time // none for a peer that was given up
	if !severed {
		deadline = time.Now().Add(c.dev.cfg.CloseTimeout)
	}
	c.s.drainAndClose(tail, deadline)
	c.dev.stalls.give(paid)
	c.dev.untrack(c)
	close(c.gone)
}

// appendTerminate appends the Terminate behind the tail of the FPDU that was cut.
func (c *conn) appendTerminate(tail []byte) []byte {
	if !c.markOut {
		return c.term.appendFPDU(tail, c.crc)
	}
	return mpa.AppendMarked(tail, c.tx.sentTo+uint64(len(tail)), c.term.appendFPDU(nil, false), c.crc)
}

// event is the asynchronous event for the end of a connection, which an orderly end has none of.
func (c *conn) event(cause error) (verbs.AsyncEvent, bool) {
	ev := verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: c.q.owner, Err: cause}
	var t *verbs.TerminateError
	switch {
	case cause == io.EOF, errors.Is(cause, verbs.ErrClosed), errors.Is(cause, verbs.ErrCQOverflow): // the CQ has its own event
		return ev, false
	case errors.As(cause, &t):
		ev.Type = eventOf(t)
	}
	return ev, true
}

// terminated ends the connection because the peer sent a Terminate, and gives its reason to the request that it names.
func (c *conn) terminated(body []byte) {
	t, _, err := rdmap.ParseTerminateLenient(body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || len(body) < rdmap.TerminateLen {
		c.fail(err, nil)
		return
	}
	cause := &verbs.TerminateError{Layer: t.Layer, Type: t.Type, Code: t.Code, Header: append([]byte(nil), t.DDPHeader...),
		Remote: true, Text: rdmap.TerminateText(t.Layer, t.Type, t.Code)}
	if siws := rdmap.SIWMeaning(&t); siws != "" {
		cause.Text += "; if the peer is siw of Linux: " + siws
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.dead.Load() {
		return
	}
	if e := c.offendingRequest(&t); e != nil {
		e.status = statusOf(&t)
	}
	c.failLocked(cause, nil)
}

// refersTo reports whether data of r wait to be sent.
func (c *conn) refersTo(r *region) bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	// Waiting for long can only be data of a connection that waits for room; then nobody has the send role, and the batch
	// can be looked at. A holder of the role would soon let go.
	if c.tx.busy {
		return false
	}
	return c.tx.refersTo(r)
}

// Disconnect implements cm.ProviderConn.
func (c *conn) Disconnect() error {
	c.fail(verbs.ErrClosed, nil)
	<-c.flushed
	return nil
}

// Close implements cm.ProviderConn.
func (c *conn) Close() error {
	c.fail(verbs.ErrClosed, nil)
	<-c.gone
	return nil
}

// Done implements cm.ProviderConn.
func (c *conn) Done() <-chan struct{} { return c.flushed }

// Err implements cm.ProviderConn.
func (c *conn) Err() error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return c.cause
}

// LocalAddr implements cm.ProviderConn.
func (c *conn) LocalAddr() net.Addr { return c.s.LocalAddr() }

// RemoteAddr implements cm.ProviderConn.
func (c *conn) RemoteAddr() net.Addr { return c.s.RemoteAddr() }

// PrivateData implements cm.ProviderConn.
func (c *conn) PrivateData() []byte { return c.private }

// Depths implements cm.ProviderConn.
func (c *conn) Depths() (ord, ird int) { return c.ord, c.ird }

// PeerDepths implements cm.ProviderConn.
func (c *conn) PeerDepths() (ord, ird int) { return c.peer.ord, c.peer.ird }
