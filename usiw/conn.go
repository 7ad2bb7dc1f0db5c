// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// conn is an established connection of a QP. The package comment describes its roles and its
// shutdown. Fields marked mu are guarded by q.mu.
type conn struct {
	q       *qp
	dev     *device
	s       stream
	crc     bool
	ord     int // limit on our Reads and atomics in progress
	ird     int // the agreed limit on the peer's Reads and atomics
	serve   int // the limit enforced on the peer's: the one announced to it, which may be higher than ird
	peer    depths
	private []byte
	rtr     bool // the peer opens the connection with a message of its own
	markOut bool // the peer asked for markers
	markIn  bool // the peer sends markers

	dead    atomic.Bool    // set once, under mu; nothing new begins after that
	workers sync.WaitGroup // the goroutine that waits for room, and the reader of the connection's own watch
	spoken  chan struct{}  // closed when the peer's first FPDU has been handled
	flushed chan struct{}  // closed when all registered memory is released and every request is flushed
	gone    chan struct{}  // closed when the stream is closed as well

	idle     *time.Timer   // checks whether bytes moved; nil without IdleTimeout
	received atomic.Uint64 // bytes received, for idle

	reason *time.Timer // mu; ends the wait for the cause of a failure (see broken); nil = not waiting
	vague  error       // mu; the failure whose cause is still awaited

	aborted bool               // mu; the shutdown does not wait for the peer
	hurry   context.CancelFunc // mu; ends the wait for the peer; nil until end sets it

	term  *termination // mu; the Terminate to send at shutdown
	cause error        // mu; why the connection ended

	watched *watch      // this connection's watch; guarded by device.watching
	atEOF   atomic.Bool // nothing more will arrive

	tx sender
	rx receiver
}

// setup holds the parameters that the two sides agreed on.
type setup struct {
	crc      bool
	ord, ird int
	serve    int    // how many concurrent Reads and atomics of the peer we accept
	peer     depths // the depths that the peer announced; -1 if it announced none
	hold     bool   // we are the passive side, and the peer must send first; see hold.go
	rtr      bool   // the peer's first message only opens the connection (RFC 6581 section 5)
	markOut  bool   // we send markers
	markIn   bool   // the peer sends markers
	private  []byte // the peer's private data

	opening  []byte      // the FPDU that we sent to open the connection
	mayMiss  bool        // the peer may not notice it; see nudge.go
	openedBy RTRMessages // RTRRead or RTRSend if this FPDU consumed a message number
}

// newConn creates q's connection from a stream on which both sides have exchanged their MPA frames,
// and starts it.
func newConn(q *qp, nc net.Conn, agreed setup) (*conn, error) {
	s, err := newStream(untapped(nc), q.dev.cfg.PeerTimeout)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c := &conn{q: q, dev: q.dev, s: s, crc: agreed.crc, ord: agreed.ord, ird: agreed.ird, serve: agreed.serve,
		peer: agreed.peer, private: agreed.private, rtr: agreed.rtr, markOut: agreed.markOut, markIn: agreed.markIn,
		spoken: make(chan struct{}), flushed: make(chan struct{}), gone: make(chan struct{})}
	c.tx.init(q, &agreed)
	c.size()
	c.rx.init(q, &agreed)
	c.tx.stall.c, c.rx.stall.c = c, c
	if err = q.connect(c); err != nil {
		s.interrupt()
		s.drainAndClose(context.Background(), nil, time.Now())
		q.dev.untrack(c)
		close(c.gone)
		return nil, err
	}
	c.watchIdle()
	c.limitHold()
	if agreed.mayMiss {
		c.nudgeLater()
	}
	return c, nil
}

// watchIdle ends the connection when no byte has moved for IdleTimeout. A Terminate shows the peer,
// if it still receives, that the shutdown is not orderly (RFC 5040 section 7.1).
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

// fail ends the connection with the given cause; later calls have no effect. t is the Terminate to
// send; nil sends none. It does not wait.
func (c *conn) fail(cause error, t *termination) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.failLocked(cause, t)
}

// The kernel reports the cause of a stream's failure to only one call; later writes fail with
// EPIPE. The goroutine that received the cause may call broken after goroutines that received
// EPIPE. reasonDelay is how long to wait for it.
const reasonDelay = 100 * time.Millisecond

// broken ends the connection because its stream failed. It does not wait, not even for the cause:
// the caller may hold a role, and a poller that waited in it could serve none of its other
// connections.
func (c *conn) broken(err error) {
	switch {
	case err == errStalled:
		err = fmt.Errorf("peer has taken no data for %v: %w", c.dev.cfg.PeerTimeout, syscall.ETIMEDOUT)
	case err == errBroken, errors.Is(err, syscall.EPIPE):
		c.brokenLater(err)
		return
	}
	c.fail(err, nil)
}

// unsent ends the connection because a write failed. A peer that reset the connection may have sent
// the reason in a Terminate that is still unread, as Linux siw does when it leaves messages unread.
func (c *conn) unsent(err error) {
	if errors.Is(err, syscall.ECONNRESET) {
		c.brokenLater(err)
		return
	}
	c.broken(err)
}

// brokenLater ends the connection after reasonDelay, unless the cause is found earlier.
func (c *conn) brokenLater(err error) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.reason == nil && !c.dead.Load() {
		c.vague = err
		c.reason = time.AfterFunc(reasonDelay, func() { c.fail(err, nil) })
	}
}

// failLocked is fail for a caller that holds q.mu.
func (c *conn) failLocked(cause error, t *termination) {
	if c.dead.Load() {
		return
	}
	if c.vague != nil && errors.Is(cause, verbs.ErrClosed) { // the stream failed before this side ended it
		cause = c.vague
	}
	if c.tx.last != nil { // a message was refused earlier, and only the answers before it were still to be sent
		cause, t = c.tx.last.err(), c.tx.last
	}
	c.cause, c.term = cause, t
	c.q.enter(verbs.QPStateErr)
	c.q.cause, c.q.flushed = cause, c.flushed
	c.dead.Store(true)
	go c.end()
}

// failRequest ends the connection because of a local error in a request. The caller holds q.mu.
func (c *conn) failRequest(e *sendEntry, status verbs.WCStatus, reason error) {
	e.status = status
	c.q.blame(e.id, status, e.op.Completion(), reason)
	t := &termination{fault: faultLocal}
	c.failLocked(fmt.Errorf("%v: %w: %w: %w", e.op, status, reason, t.err()), t)
}

// refuse ends the connection because of an error in a message from the peer. Later messages are
// ignored. The answers to earlier messages are sent before the Terminate, so that the peer knows
// which of its requests were performed; if the peer does not accept them within CloseTimeout, they
// are dropped. The caller holds the receive role.
func (c *conn) refuse(f fault, ulpdu []byte) {
	t := terminationOf(f, ulpdu)
	t.access = c.rx.access
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if !c.tx.busy && !c.tx.blocked && c.tx.responses.Len() == 0 || c.dead.Load() {
		c.failLocked(t.err(), t)
		return
	}
	c.rx.refused, c.rx.reply = true, true
	c.tx.last = t
	c.tx.grace = time.AfterFunc(c.dev.cfg.CloseTimeout, func() { c.fail(t.err(), t) })
}

// end shuts the connection down. Its order ensures that memory is not accessed after its request
// completes, that the Terminate follows a whole FPDU, and that closing the stream does not discard
// data already sent.
func (c *conn) end() {
	c.dev.endWatch(c)
	c.s.interrupt()
	c.workers.Wait()

	// Take both roles and keep them. Their current holders leave soon: they never wait for the
	// network, and they check dead.
	c.rx.mu.Lock()
	c.q.mu.Lock()
	for c.tx.busy {
		c.tx.idle.Wait()
	}
	c.tx.busy = true
	tail := c.tx.cut(&c.dev.stalls)
	severed := c.tx.severed || c.aborted
	patience, hurry := context.WithCancel(context.Background())
	defer hurry()
	c.hurry = hurry
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
	for _, timer := range []*time.Timer{c.idle, c.tx.grace, c.tx.holdTimer, c.tx.nudgeTimer, c.reason} {
		if timer != nil {
			timer.Stop()
		}
	}
	c.rx.flush(c.q)
	c.q.flush()
	if ev, ok := c.event(c.cause); ok {
		c.q.ctx.events.Post(ev)
	}
	close(c.flushed) // under q.mu: from here on PostSend and PostRecv flush new requests themselves
	c.q.mu.Unlock()
	c.rx.mu.Unlock()

	c.tap(c.tapTime(), true, [][]byte{tail}, len(tail))
	var deadline time.Time // none for a peer that was given up
	if !severed {
		deadline = time.Now().Add(c.dev.cfg.CloseTimeout)
	}
	c.s.drainAndClose(patience, tail, deadline)
	c.dev.stalls.give(paid)
	c.dev.untrack(c)
	close(c.gone)
}

// appendTerminate appends the Terminate to tail, the rest of a partly sent FPDU.
func (c *conn) appendTerminate(tail []byte) []byte {
	if !c.markOut {
		return c.term.appendFPDU(tail, c.crc)
	}
	return mpa.AppendMarked(tail, c.tx.sentTo+uint64(len(tail)), c.term.appendFPDU(nil, false), c.crc)
}

// event returns the asynchronous event to report when the connection ends. It reports false if
// there is none, as for an orderly shutdown.
func (c *conn) event(cause error) (verbs.AsyncEvent, bool) {
	ev := verbs.AsyncEvent{Type: verbs.EventQPFatal, QP: c.q.owner, Err: cause}
	var t *verbs.TerminateError
	switch {
	case cause == io.EOF, errors.Is(cause, verbs.ErrClosed),
		errors.Is(cause, verbs.ErrCQOverflow): // the CQ has its own event
		return ev, false
	case errors.As(cause, &t):
		ev.Type = eventOf(t)
	}
	return ev, true
}

// terminated ends the connection because the peer sent a Terminate, and sets the status of the
// offending request.
func (c *conn) terminated(body []byte) {
	t, _, err := rdmap.ParseTerminateLenient(body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || len(body) < rdmap.TerminateLen {
		c.fail(err, nil)
		return
	}
	cause := &verbs.TerminateError{Layer: t.Layer, Type: t.Type, Code: t.Code,
		Header: append([]byte(nil), t.DDPHeader...), Remote: true, Text: rdmap.TerminateText(t.Layer, t.Type, t.Code)}
	if siws := rdmap.SIWMeaning(&t); siws != "" {
		cause.Text += "; if the peer is siw of Linux: " + siws
	}
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.dead.Load() {
		return
	}
	e := c.offendingRequest(&t)
	cause.Access = accessOf(&t, e)
	if e != nil {
		e.status = statusOf(&t)
		c.q.blame(e.id, e.status, e.op.Completion(), cause)
	}
	c.failLocked(cause, nil)
}

// refersTo reports whether data in r are waiting to be sent.
func (c *conn) refersTo(r *region) bool {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	// Data wait long only while the socket has no room. No goroutine holds the send role then, so
	// the batch can be read here. A goroutine that does hold the role leaves it soon.
	if c.tx.busy {
		return false
	}
	return c.tx.refersTo(r)
}

// Disconnect implements cm.ProviderConn.
func (c *conn) Disconnect() error {
	c.fail(verbs.EndDisconnect, nil)
	<-c.flushed
	return nil
}

// CloseContext implements cm.ProviderConn. If ctx is done before the shutdown begins, CloseContext
// returns its error, however soon the shutdown finishes.
func (c *conn) CloseContext(ctx context.Context) error {
	err := ctx.Err()
	if err != nil {
		select {
		case <-c.gone:
			return nil
		default:
			c.abort() // before the shutdown begins, so that nothing is sent
		}
	}
	c.fail(verbs.EndDisconnect, nil)
	if err == nil {
		select {
		case <-c.gone:
			return nil
		case <-ctx.Done():
			err = ctx.Err()
			c.abort()
		}
	}
	<-c.gone
	return err
}

// abort keeps the shutdown from waiting for the peer.
func (c *conn) abort() {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	c.aborted = true
	if c.hurry != nil {
		c.hurry()
	}
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
