// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/verbs"
)

// connection is one attempt to connect an EP and the connection that results. One goroutine serves
// it from the call that starts it until it has ended.
type connection struct {
	ep       *EP
	ctx      context.Context // of the attempt; Disconnect and Free cancel it
	cancel   context.CancelFunc
	leaving  chan struct{} // closed by the first Disconnect
	hurry    chan struct{} // closed by the first abrupt one
	over     chan struct{} // closed when the connection has ended completely
	graceful bool          // guarded by ep.mu, as are the fields below
	left     bool
	hurried  bool
	silent   bool // Free wants no event
}

// begin moves an EP from UNCONNECTED to pending and starts the goroutine. claim may be nil; if not,
// its error cancels the call. connect establishes the connection.
func (ep *EP) begin(call string, pending EPState, timeout time.Duration, claim func() error,
	connect func(context.Context) (*cm.ID, error)) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if state := ep.State(); state != EPUnconnected {
		return inState(call, state)
	}
	if claim != nil {
		if err := claim(); err != nil {
			return err
		}
	}
	c := &connection{ep: ep, leaving: make(chan struct{}), hurry: make(chan struct{}), over: make(chan struct{})}
	if timeout == Infinite {
		c.ctx, c.cancel = context.WithCancel(context.Background())
	} else {
		c.ctx, c.cancel = context.WithTimeout(context.Background(), timeout)
	}
	ep.conn = c
	ep.set(pending)
	go c.run(connect)
	return nil
}

// Connect connects the EP to the PSP with the qualifier connQual at address (dat_ep_connect). It
// returns immediately. The outcome is an event on the connection EVD with the peer's private data:
// ConnectionEstablished, or ConnectionPeerRejected, ConnectionNonPeerRejected, ConnectionTimedOut
// or ConnectionUnreachable, after which the EP is DISCONNECTED. timeout bounds the attempt; with
// Infinite, the device decides.
//
// The EP must be UNCONNECTED. private is copied; it may have up to MaxPrivateData bytes.
func (ep *EP) Connect(address netip.Addr, connQual uint64, timeout time.Duration, private []byte) error {
	const call = "EP.Connect"
	if err := ep.enter(call); err != nil {
		return err
	}
	defer ep.node.Exit()
	switch {
	case !address.IsValid() || address.IsUnspecified():
		return fault(call, InvalidAddress, InvalidAddressMalformed, fmt.Errorf("the address %v", address))
	case address.IsMulticast():
		return fault(call, InvalidAddress, InvalidAddressUnsupported, fmt.Errorf("the address %v", address))
	case connQual == 0 || connQual > math.MaxUint16:
		return argument(call, InvalidArg3, "the connection qualifier %d is not a port", connQual)
	case timeout <= 0 && timeout != Infinite:
		return argument(call, InvalidArg4, "a time-out of %v", timeout)
	case len(private) > MaxPrivateData:
		return argument(call, InvalidArg5, "%d bytes of private data, of %d", len(private), MaxPrivateData)
	}
	param, to := ep.param(private), netip.AddrPortFrom(address, uint16(connQual)).String()
	return ep.begin(call, EPActiveConnectionPending, timeout, nil, func(ctx context.Context) (*cm.ID, error) {
		return ep.dial(ctx, to, param)
	})
}

// dial connects.
func (ep *EP) dial(ctx context.Context, to string, param cm.ConnParam) (*cm.ID, error) {
	id, err := cm.Resolve(ctx, to, cm.Config{Context: ep.ia.ctx})
	if err != nil {
		return nil, err
	}
	if err = ep.usePort(id.PortNum()); err == nil {
		err = id.Connect(ctx, ep.qp, param)
	}
	if err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// usePort sets the device port of the QP, which is in INIT.
func (ep *EP) usePort(port int) error {
	if port <= 1 {
		return nil
	}
	return ep.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: uint8(port)},
		verbs.QPAttrState|verbs.QPAttrPort)
}

// param returns this side's connection parameters.
func (ep *EP) param(private []byte) cm.ConnParam {
	return cm.ConnParam{PrivateData: bytes.Clone(private), InitiatorDepth: ep.attr.MaxRDMAReadOut,
		ResponderResources: ep.attr.MaxRDMAReadIn}
}

// Disconnect closes the connection (dat_ep_disconnect). It returns immediately; both sides get the
// event ConnectionDisconnected. CloseAbrupt flushes outstanding DTOs. CloseGraceful lets earlier
// requests complete first and refuses later ones. An abrupt Disconnect cuts a graceful one short.
//
// In the states ACTIVE_CONNECTION_PENDING and COMPLETION_PENDING it cancels the attempt. In
// DISCONNECTED it has no effect. In UNCONNECTED the error is [InvalidState].
func (ep *EP) Disconnect(flags CloseFlags) error {
	const call = "EP.Disconnect"
	if err := ep.enter(call); err != nil {
		return err
	}
	defer ep.node.Exit()
	if flags != CloseAbrupt && flags != CloseGraceful {
		return argument(call, InvalidArg2, "close flags %#x", uint32(flags))
	}
	ep.mu.Lock()
	conn, state := ep.conn, ep.State()
	ep.mu.Unlock()
	switch state {
	case EPUnconnected:
		return inState(call, state)
	case EPDisconnected:
		return nil
	}
	conn.leave(flags, false)
	return nil
}

// leave asks the connection's goroutine to close it.
func (c *connection) leave(flags CloseFlags, silent bool) {
	c.ep.mu.Lock()
	defer c.ep.mu.Unlock()
	c.silent = c.silent || silent
	state := c.ep.State()
	if state == EPActiveConnectionPending || state == EPCompletionPending {
		c.cancel()
	}
	if state != EPDisconnected {
		c.ep.set(EPDisconnectPending)
	}
	if !c.left {
		c.left, c.graceful = true, flags == CloseGraceful
		close(c.leaving)
	}
	if flags == CloseAbrupt && !c.hurried {
		c.hurried = true
		close(c.hurry)
	}
}

// run is the goroutine of a connection.
func (c *connection) run(connect func(context.Context) (*cm.ID, error)) {
	defer close(c.over)
	defer c.cancel()
	active := c.ep.State() == EPActiveConnectionPending
	id, err := connect(c.ctx)
	if err != nil {
		_ = c.ep.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) // flushes receives
		c.finish(c.why(err, active), refusal(err), err)
		return
	}
	c.established(id)
	select {
	case <-id.Done():
	case <-c.leaving:
		c.ep.mu.Lock()
		graceful := c.graceful
		c.ep.mu.Unlock()
		if graceful {
			c.flushOut(id)
		}
		_ = id.Disconnect() // an error means that it has already ended
	}
	<-id.Done()
	c.ep.settle() // some devices do not report that a fault is the reason, but the DTO does
	reason := id.Err()
	number := ConnectionBroken
	if c.isLeft() || !c.ep.faulty.Load() && (errors.Is(reason, io.EOF) || errors.Is(reason, verbs.EndDisconnect)) {
		number = ConnectionDisconnected
	}
	c.finish(number, nil, reason)
	_ = id.Close() // no caller is left to receive this error
}

func (c *connection) isLeft() bool {
	c.ep.mu.Lock()
	defer c.ep.mu.Unlock()
	return c.left
}

// established reports the connection to the program, unless it is being closed.
func (c *connection) established(id *cm.ID) {
	ep := c.ep
	ep.mu.Lock()
	ep.local, ep.remote = id.LocalAddr(), id.RemoteAddr()
	up := !c.left
	if up {
		ep.set(EPConnected)
	}
	ep.mu.Unlock()
	if up {
		ep.connEVD.post(Event{Number: ConnectionEstablished,
			Connection: Connection{EP: ep, PrivateData: bytes.Clone(id.PrivateData())}})
	}
}

// finish makes the EP DISCONNECTED and posts the event.
func (c *connection) finish(number EventNumber, private []byte, reason error) {
	ep := c.ep
	ep.mu.Lock()
	silent := c.silent
	ep.set(EPDisconnected)
	ep.mu.Unlock()
	if !silent {
		ep.connEVD.post(Event{Number: number, Connection: Connection{EP: ep, PrivateData: private, Cause: reason}})
	}
}

// why returns the event for the error of an attempt.
func (c *connection) why(err error, active bool) EventNumber {
	var peer *ibcompat.PeerError
	switch {
	case c.isLeft():
		return ConnectionDisconnected
	case !active:
		return ConnectionAcceptCompletionErr
	case errors.As(err, &peer):
		return ConnectionNonPeerRejected
	case errors.Is(err, cm.ErrRejected):
		return ConnectionPeerRejected
	case errors.Is(err, syscall.ECONNREFUSED):
		return ConnectionNonPeerRejected
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, cm.ErrSetupTimeout),
		errors.Is(err, syscall.ETIMEDOUT):
		return ConnectionTimedOut
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, verbs.ErrNoDevice),
		errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EADDRNOTAVAIL):
		return ConnectionUnreachable
	}
	return ConnectionNonPeerRejected
}

// refusal returns the private data of a rejection.
func refusal(err error) []byte {
	var rejected *cm.RejectedError
	if !errors.As(err, &rejected) {
		return nil
	}
	return bytes.Clone(rejected.PrivateData)
}

// flushOut waits until the requests have completed, the connection has ended, or Disconnect is
// called abruptly. The program need not dequeue completions meanwhile: they are moved to its EVD.
func (c *connection) flushOut(id *cm.ID) {
	const least, most = 100 * time.Microsecond, 10 * time.Millisecond
	timer := time.NewTimer(least)
	defer timer.Stop()
	marked := false
	for pause := least; ; pause = min(2*pause, most) {
		c.ep.reqEVD.settle()
		if c.ep.requests.idle() {
			return
		}
		if !marked && c.ep.requests.silent() {
			marked = true
			if c.ep.mark() != nil {
				return
			}
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-id.Done():
			return
		case <-c.hurry:
			return
		}
	}
}

// mark posts an RDMA Write of no bytes, whose completion also confirms the suppressed requests
// before it. Every queue reserves a place for it.
func (ep *EP) mark() error {
	q := &ep.requests
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sgl = q.sgl[:0]
	wr := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
	return ep.postRequest("EP.Disconnect", &wr, record{op: DTORDMAWrite, marker: true})
}

// drainLimit bounds how long Free waits for the device.
const drainLimit = 30 * time.Second
