// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Conn is a connection. It implements net.Conn. All methods may be called concurrently; Reads are
// serialized, and so are Writes.
//
// Errors are *net.OpError, except for io.EOF. Their causes are:
//
//   - io.EOF from Read: the peer closed its write direction or the connection, and everything it
//     sent before was read.
//   - syscall.ECONNRESET: the connection ended without that, or the peer closed and can no longer
//     read. The error includes the reason.
//   - [*ProtocolError]: the peer violated the protocol. The connection was terminated.
//   - os.ErrDeadlineExceeded, which is a timeout.
//   - net.ErrClosed after Close, syscall.EPIPE from Write after CloseWrite.
type Conn struct {
	res           *resources
	id            *cm.ID
	local, remote net.Addr
	order         binary.ByteOrder // of the peer
	table         entry            // the peer's; length counts entries
	places        int              // places for mappings, after that table

	turn    chan struct{} // holds a token while no goroutine polls the CQ
	wcs     [16]verbs.WC  // of the goroutine that holds the turn
	closing chan struct{} // closed by Close
	sent    chan struct{} // closed when everything is sent or can no longer be sent
	gone    chan struct{} // closed when the underlying connection has ended
	ended   chan struct{} // closed when everything is released
	rd, wr  side
	alive   keepalive
	shown   atomic.Uint32 // stage

	patience time.Duration // closeTimeout
	hushEnd  *time.Timer   // calls speak; nil if the connection was not hushed

	mu     sync.Mutex      // guards the fields below
	ctx    context.Context // of the wait for completions
	cancel context.CancelFunc
	driver *side // the side of the goroutine that waits for completions
	in     inbound
	looked int // index in this side's table of the peer's next entry
	out    outbound
	queue  sendQueue
	place  uint32     // in the peer's table, for this side's next entry
	idle   []uint32   // receives to be posted again
	theirs []mapped   // what the peer mapped for WriteAt
	own    []*Mapping // by index in the peer's area; nil for none
	linger int        // seconds, see SetLinger

	hushed   bool  // nothing may be sent before the peer's first message, see Conn.hush
	wclosed  bool  // CloseWrite was called
	rclosed  bool  // CloseRead was called
	closed   bool  // Close was called
	wantShut bool  // SHUTDOWN is to be sent
	wantBye  bool  // DISCONNECT is to be sent
	saidBye  bool  // DISCONNECT was sent
	peerGone bool  // the peer's DISCONNECT arrived
	down     bool  // nothing more can be sent
	failure  error // why; nil after an orderly end

	sendWRs  [2]verbs.SendWR // of a post
	sendSGEs [2]verbs.SGE
	recvWRs  [recvBatch]verbs.RecvWR
	recvSGEs [recvBatch]verbs.SGE
}

// side is one direction of a connection, as its callers see it.
type side struct {
	lock     chan struct{} // holds a token while a goroutine is inside
	wake     chan struct{} // holds a token when the waiting goroutine must check again
	deadline deadline
	ready    func() bool // reports whether there is nothing to wait for; called with Conn.mu held
	waiting  bool        // guarded by Conn.mu
}

func (s *side) init(ready func() bool, passed func()) {
	s.lock, s.wake, s.ready = make(chan struct{}, 1), make(chan struct{}, 1), ready
	s.deadline.init(passed)
}

// newConn returns a Conn that is not yet connected.
func newConn(res *resources) *Conn {
	c := &Conn{res: res, turn: make(chan struct{}, 1), closing: make(chan struct{}), sent: make(chan struct{}),
		gone: make(chan struct{}), ended: make(chan struct{}), linger: -1, patience: closeTimeout}
	c.turn <- struct{}{}
	c.rd.init(c.readable, c.interrupt)
	c.wr.init(c.writable, c.interrupt)
	c.idle = make([]uint32, 0, len(c.wcs)+recvBatch)
	c.in.init(firstHalf(res.cfg.RecvBuffer), res.cfg.RecvBuffer/2, uint16(res.cfg.RecvQueue), res.cfg.Mappings)
	c.theirs = make([]mapped, res.cfg.Mappings)
	c.queue.init(res.cfg.SendQueue)
	return c
}

// start starts the stream on an established connection.
func (c *Conn) start(id *cm.ID, peer *connData) {
	c.id = id
	c.local, c.remote = tcpAddr(id.LocalAddr()), tcpAddr(id.RemoteAddr())
	c.order, c.table, c.places = peer.order(), peer.table, peer.mappings
	c.shown.Store(uint32(stageOpen))
	c.mu.Lock()
	c.out.init(peer, c.res.iwarp, firstSize(c.res.cfg.SendBuffer), c.res.cfg.SendBuffer)
	c.looked, c.place = 1, 1 // entry 0 of both tables is in the private data
	c.sendControl()
	if c.hushed {
		c.hushEnd = time.AfterFunc(hushTime, c.speak)
	}
	c.mu.Unlock()
	c.alive.start(c)
}

// hush makes the passive side on a kernel iWARP device wait for the peer's first message. A peer of
// this package sends one in start, a C program in its first call. Linux siw terminates the
// connection if anything follows the MPA Reply immediately; the user-space RNIC handles this
// itself. hush is called before start.
//
// Package cm and the provider of kernel devices cannot do this for every program: a Write of the
// peer generates no completion, and a peer may never send first. They could only delay every
// connection by a fixed time.
//
// A passive siw can also miss the peer's first message until another one arrives. If both sides
// then wait, this side sends after hushTime.
func (c *Conn) hush(dev *verbs.Device) {
	c.hushed = c.res.iwarp && kernelDevice(dev)
}

// hushTime is how long the passive side waits for the first message.
const hushTime = 2 * time.Second

// speak ends the wait started by hush.
func (c *Conn) speak() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hushed = false
	c.sendControl()
	c.wakeReady()
}

// tcpAddr converts an address of package cm to a *net.TCPAddr if it has an IP address and a port.
func tcpAddr(a net.Addr) net.Addr {
	if at, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return net.TCPAddrFromAddrPort(at.AddrPort())
	}
	return a
}

// LocalAddr returns the local address, a *net.TCPAddr. Its port belongs to RDMA_PS_TCP.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address, a *net.TCPAddr.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// ID returns the underlying connection, for access to its device, its state and its error. Callers
// must not post requests to its QP.
func (c *Conn) ID() *cm.ID { return c.id }

// Device returns the device of the connection.
func (c *Conn) Device() *verbs.Device { return c.id.Context().Device() }

// SetDeadline sets the read and write deadlines; the zero time means no deadline.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadline(t, &c.rd, &c.wr)
}

// SetReadDeadline sets the time after which Reads fail, including pending ones.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.rd) }

// SetWriteDeadline sets the time after which Writes fail, including pending ones; part of the data
// may have been sent by then.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.wr) }

func (c *Conn) setDeadline(t time.Time, sides ...*side) error {
	select {
	case <-c.closing:
		return opError("set", c.local, c.remote, net.ErrClosed)
	default:
	}
	for _, s := range sides {
		s.deadline.set(t)
	}
	return nil
}

// enter waits until the caller is the only goroutine inside the side.
func (c *Conn) enter(s *side) error {
	select {
	case s.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case s.lock <- struct{}{}:
		return nil
	case <-c.closing:
		return net.ErrClosed
	}
}

func (s *side) leave() { <-s.lock }

// readable is rd's ready function.
func (c *Conn) readable() bool { return c.in.unread > 0 || c.readError() != nil }

// readError returns what Read returns when there are no data; nil if more may arrive. The caller
// holds mu.
func (c *Conn) readError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.rclosed || c.in.ended:
		return io.EOF
	case c.down:
		return c.reset()
	}
	return nil
}

// writable is wr's ready function.
func (c *Conn) writable() bool {
	if c.writeError() != nil {
		return true
	}
	_, n := c.out.room()
	return n > 0 && !c.hushed && c.queue.free >= c.dataWRs()+controlRoom
}

// writeError returns what Write returns if no more data can be sent. The caller holds mu.
func (c *Conn) writeError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.wclosed:
		return syscall.EPIPE
	case c.peerGone, c.down:
		return c.reset()
	}
	return nil
}

// reset returns the error of a connection that has failed or ended. The caller holds mu.
func (c *Conn) reset() error {
	switch err := c.failure.(type) {
	case nil:
		return syscall.ECONNRESET
	case *ProtocolError:
		return err
	default:
		return fmt.Errorf("%w: %w", syscall.ECONNRESET, err)
	}
}

// Read reads available data, waiting for at least one byte unless p is empty.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil && err != io.EOF {
		err = opError("read", c.local, c.remote, err)
	}
	return n, err
}

func (c *Conn) read(p []byte) (n int, err error) {
	if err := c.enter(&c.rd); err != nil {
		return 0, err
	}
	defer c.rd.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		if c.closed {
			return 0, net.ErrClosed
		}
		return 0, nil
	}
	if err := c.await(&c.rd); err != nil {
		return 0, err
	}
	for n < len(p) && c.in.unread > 0 {
		at, run := c.in.run()
		c.mu.Unlock()
		k := copy(p[n:], c.res.ring[at:at+run])
		c.mu.Lock()
		if err := c.consume(k); err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}

// consume records that the next n bytes were read and grants new ones. It returns an error if
// CloseRead or Close dropped them in the meantime. The caller holds mu and the lock of rd.
func (c *Conn) consume(n int) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.rclosed:
		return io.EOF
	}
	c.in.consume(n)
	c.sendControl()
	return nil
}

// Write sends p. When it returns, the caller may reuse p. Unless there is an error, all of p has
// been handed to the device.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.write(p)
	return n, opError("write", c.local, c.remote, err)
}

func (c *Conn) write(p []byte) (n int, err error) {
	if err := c.enter(&c.wr); err != nil {
		return 0, err
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) == 0 {
		return 0, c.writeError()
	}
	for n < len(p) {
		at, room, err := c.space()
		if err != nil {
			return n, err
		}
		k := min(room, len(p)-n)
		if err := c.fill(at, p[n:n+k]); err != nil {
			return n, err
		}
		c.sendData(at, k)
		n += k
	}
	return n, nil
}

// fill copies p into the send buffer at the given offset. The caller holds the lock of wr and mu,
// which is released while copying.
func (c *Conn) fill(at int, p []byte) error {
	c.mu.Unlock()
	copy(c.res.out[at:], p)
	c.mu.Lock()
	return c.writeError()
}

// space waits until a message can be sent. It returns the offset of its data in the send buffer and
// the maximum length. The caller holds mu and the lock of wr.
func (c *Conn) space() (at, n int, err error) {
	if err := c.await(&c.wr); err != nil {
		return 0, 0, err
	}
	if err := c.writeError(); err != nil {
		return 0, 0, err
	}
	c.out.rewind()
	at, n = c.out.room()
	return at, n, nil
}

// await waits until s is ready, polling for completions if no other goroutine does. For rd it
// returns readError if there are no data. The caller holds mu, which is released while waiting.
func (c *Conn) await(s *side) error {
	for {
		if c.closed {
			return net.ErrClosed
		}
		if s.deadline.past.Load() {
			return os.ErrDeadlineExceeded
		}
		if s.ready() {
			if s == &c.rd && c.in.unread == 0 {
				return c.readError()
			}
			return nil
		}
		passed := s.deadline.channel()
		s.waiting = true
		c.mu.Unlock()
		mine := false
		select {
		case <-c.turn:
			mine = true
		case <-s.wake:
		case <-passed:
		}
		c.mu.Lock()
		if mine {
			c.drive(s)
		}
		s.waiting = false
	}
}

// drive polls for completions until s is ready or its deadline has passed, then releases the turn.
// The caller holds mu, which is released while waiting.
func (c *Conn) drive(s *side) {
	for !s.ready() && !s.deadline.past.Load() {
		ctx := c.context()
		c.driver = s
		c.mu.Unlock()
		n, err := c.res.cq.Wait(ctx, c.wcs[:])
		c.mu.Lock()
		c.driver = nil
		c.process(c.wcs[:n])
		if err != nil && ctx.Err() == nil {
			c.fail(err)
		}
	}
	c.turn <- struct{}{}
}

// context returns the context for the next wait for completions. The caller holds mu.
func (c *Conn) context() context.Context {
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithCancel(context.Background())
	}
	return c.ctx
}

// interrupt interrupts the wait for completions, so that waiting goroutines check again whether a
// deadline has passed or the connection is closed.
func (c *Conn) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interruptLocked()
}

func (c *Conn) interruptLocked() {
	if c.cancel != nil {
		c.cancel()
		c.ctx, c.cancel = nil, nil
	}
}

// wakeReady wakes the goroutines whose side is ready. The caller holds mu.
func (c *Conn) wakeReady() {
	for _, s := range [...]*side{&c.rd, &c.wr} {
		switch {
		case !s.waiting || !s.ready():
		case c.driver == s:
			c.interruptLocked()
		default:
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}
}
