// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// Context is an open device, the root of all objects created on it. All methods may be called
// concurrently.
type Context struct {
	node     lifetime.Node
	dev      *Device
	p        ProviderContext
	attr     DeviceAttr
	ops      OpSet
	isShared bool // the process-wide context of the device
}

func openContext(d *Device, shared bool) (*Context, error) {
	c := &Context{dev: d, isShared: shared}
	var err error
	if c.p, err = d.p.Open(c); err != nil {
		return nil, opError("Open", d.Name(), err)
	}
	if c.attr, err = c.p.QueryDevice(); err != nil {
		return nil, opError("Open", d.Name(), errors.Join(err, c.p.Close()))
	}
	c.ops = c.p.Ops()
	c.node.SetOwner(d)
	if err := c.node.Init("Context", c.Close); err != nil {
		return nil, opError("Open", d.Name(), errors.Join(err, c.p.Close()))
	}
	return c, nil
}

// Device returns the device that was opened.
func (c *Context) Device() *Device { return c.dev }

// Provider returns the provider's context object, for connection managers and other code that
// extends a provider.
func (c *Context) Provider() ProviderContext { return c.p }

// Supports reports whether the device has the operation. ext.SupportOf tells whether it is native,
// as in most cases; [QP.Supports] tells whether a particular QP has it.
func (c *Context) Supports(op Op) bool { return c.ops.Has(op) }

// Ops returns the operations that the device has; see Supports.
func (c *Context) Ops() OpSet { return c.ops }

// enter begins a call, or returns the error of a closed context.
func (c *Context) enter(op string) error {
	if c.node.Enter() {
		return nil
	}
	return opError(op, c.dev.Name(), ErrClosed)
}

// QueryDevice returns the device's attributes and limits (ibv_query_device(3)).
func (c *Context) QueryDevice() (DeviceAttr, error) {
	if err := c.enter("QueryDevice"); err != nil {
		return DeviceAttr{}, err
	}
	defer c.node.Exit()
	attr, err := c.p.QueryDevice()
	return attr, opError("QueryDevice", c.dev.Name(), err)
}

// QueryPort returns the attributes of a port (ibv_query_port(3)). Ports are numbered from 1.
func (c *Context) QueryPort(port int) (PortAttr, error) {
	if err := c.enter("QueryPort"); err != nil {
		return PortAttr{}, err
	}
	defer c.node.Exit()
	if err := c.checkPort(port); err != nil {
		return PortAttr{}, opError("QueryPort", c.dev.Name(), err)
	}
	attr, err := c.p.QueryPort(port)
	return attr, opError("QueryPort", c.dev.Name(), err)
}

func (c *Context) checkPort(port int) error {
	if port < 1 || port > c.attr.PhysPortCnt {
		return invalid("port %d: the device has ports 1 to %d", port, c.attr.PhysPortCnt)
	}
	return nil
}

// AsyncEvent is an asynchronous event of a QP, CQ, SRQ or port, or of the device itself
// (ibv_get_async_event(3)). Unlike in C, events need no acknowledgement.
type AsyncEvent struct {
	Type EventType
	QP   *QP   // the QP concerned, or nil
	CQ   *CQ   // the CQ concerned, or nil
	SRQ  *SRQ  // the SRQ concerned, or nil
	Port int   // the port concerned, from 1, or 0
	Err  error // the reason, if known: a *TerminateError, ErrCQOverflow, or the error of the stream
}

// OfClosed reports whether the object concerned is closed or closing. WaitEvent does not return
// such events, and they do not keep the object in memory.
func (e AsyncEvent) OfClosed() bool {
	return e.QP != nil && e.QP.node.Closed() || e.CQ != nil && e.CQ.node.Closed() || e.SRQ != nil && e.SRQ.node.Closed()
}

// text describes the event in one line.
func (e AsyncEvent) text() string {
	s := e.Type.String()
	if e.QP != nil {
		s += fmt.Sprintf(" on QP %d", e.QP.Num())
	}
	if e.Port != 0 {
		s += fmt.Sprintf(" on port %d", e.Port)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// WaitEvent waits for the next asynchronous event of the context. The queue holds 1,024 events:
// beyond that the oldest are dropped, as are events of closed objects. The error Is ctx.Err() when
// ctx is done, and [ErrClosed] when the context is closed.
func (c *Context) WaitEvent(ctx context.Context) (AsyncEvent, error) {
	if c.node.Closed() {
		return AsyncEvent{}, opError("WaitEvent", c.dev.Name(), ErrClosed)
	}
	ev, err := c.p.WaitEvent(ctx)
	return ev, opError("WaitEvent", c.dev.Name(), err)
}

// Close closes the context and unblocks every WaitEvent. It is idempotent and may be called on nil.
// The error Is [ErrBusy] if the context has live objects or is the device's shared context.
func (c *Context) Close() error {
	if c == nil {
		return nil
	}
	if c.isShared {
		return opError("Close", c.dev.Name(), fmt.Errorf("%w: the shared context ends by Device.CloseShared", ErrBusy))
	}
	return c.end()
}

func (c *Context) end() error {
	first, err := c.node.BeginClose()
	if !first || err != nil {
		return opError("Close", c.dev.Name(), err)
	}
	c.node.Drain(0)
	err = c.p.Close()
	c.node.End()
	return opError("Close", c.dev.Name(), err)
}

// CloseAll closes every object of the context, children before parents, and then the context
// itself, unless it is the shared one. It suits the end of a main function: connections are cut
// without an orderly disconnect.
func (c *Context) CloseAll() error {
	if c == nil {
		return nil
	}
	err := c.node.CloseChildren()
	if c.isShared {
		return err
	}
	return errors.Join(err, c.Close())
}
