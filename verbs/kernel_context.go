// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goverbs/goverbs/internal/eventfd"
	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/queue"
)

// kernelContext is an open device.
type kernelContext struct {
	dev     *kernelDevice
	owner   *Context
	c       ibverbs.Context
	attr    DeviceAttr
	ops     OpSet
	withInv uint32 // completion flag with which the library reports an invalidated key
	file    *eventfd.File
	async   *queue.Events[AsyncEvent]

	counts struct{ pd, mr, mw, cq, qp, srq, ah objectCount }
}

// Open opens the device and starts reading its asynchronous events.
func (d *kernelDevice) Open(owner *Context) (ProviderContext, error) {
	opened, err := d.lib.Open(d.info.Name, uint64(d.info.NodeGUID))
	if err != nil {
		return nil, callError("ibv_open_device", err)
	}
	c := &kernelContext{dev: d, owner: owner, c: opened, withInv: uint32(WCWithInv)}
	p, err := c.start()
	if err != nil {
		_ = opened.Close()
		return nil, err
	}
	return p, nil
}

// start determines the device's capabilities, starts reading its events, and returns the context
// for its driver.
func (c *kernelContext) start() (ProviderContext, error) {
	var attr ibverbs.DeviceAttr
	if err := c.c.QueryDevice(&attr); err != nil {
		return nil, callError("ibv_query_device", err)
	}
	c.attr = publicDeviceAttr(&attr)
	d := driverOf(c.dev.info, c.attr)
	library := c.c
	if d.extended != nil {
		rings := newRingContext(library, c.attr.MaxCQE)
		version, err := rings.version()
		if err != nil {
			return nil, err
		}
		if more := d.extended(version); more != nil {
			d, c.c = *more, rings
		}
	}
	inline, more, err := c.dev.probe(library, d.inline, c.saysAtomicWrite())
	if err != nil {
		return nil, err
	}
	c.attr.MaxInlineData, c.ops = inline, d.ops|more
	_, events := c.c.FDs()
	if c.file, err = eventfd.New(events, c.dev.info.Name+" events"); err != nil {
		return nil, err
	}
	c.async = queue.NewEvents(AsyncEvent.OfClosed)
	c.limitObjects()
	go c.readEvents()
	if d.wrap == nil {
		return c, nil
	}
	return d.wrap(c), nil
}

// QueryDevice returns the attributes read by start: they do not change while a device is open.
func (c *kernelContext) QueryDevice() (DeviceAttr, error) { return c.attr, nil }

// QueryDeviceEx queries the device. Libraries and kernels that lack the call have no extended
// attributes.
func (c *kernelContext) QueryDeviceEx() (DeviceAttrEx, error) {
	var attr ibverbs.DeviceAttrEx
	switch err := c.c.QueryDeviceEx(&attr); err {
	case nil:
		return publicDeviceAttrEx(&attr), nil
	case syscall.EOPNOTSUPP, syscall.ENOSYS:
		return DeviceAttrEx{}, nil
	default:
		return DeviceAttrEx{}, callError("ibv_query_device_ex", err)
	}
}

// hasODP reports whether the device advertises on-demand paging.
func (c *kernelContext) hasODP() bool {
	attr, err := c.QueryDeviceEx()
	return err == nil && attr.ODP.General&ODPSupport != 0
}

// saysAtomicWrite reports whether the device advertises Atomic Writes.
func (c *kernelContext) saysAtomicWrite() bool {
	attr, err := c.QueryDeviceEx()
	return err == nil && attr.DeviceCapFlagsEx&DeviceAtomicWrite != 0
}

// Ops returns the operations that the device's driver supports, see driverOf and probe.
func (c *kernelContext) Ops() OpSet { return c.ops }

// Close makes every WaitEvent return, stops reading events, and closes the device.
func (c *kernelContext) Close() error {
	err := c.file.Close()
	c.async.Close()
	if failed := c.c.Close(); failed != nil {
		return callError("ibv_close_device", failed)
	}
	return err
}

// QueryPort queries the port.
func (c *kernelContext) QueryPort(port int) (PortAttr, error) {
	var attr ibverbs.PortAttr
	if err := c.c.QueryPort(port, &attr); err != nil {
		return PortAttr{}, callError("ibv_query_port", err)
	}
	return publicPortAttr(&attr), nil
}

// QueryGID returns an entry of the GID table.
func (c *kernelContext) QueryGID(port, index int) (GIDEntry, error) {
	var g ibverbs.GID
	err := c.c.QueryGID(port, index, &g)
	switch {
	case err == syscall.ENODATA, err == syscall.ENOENT, err == nil && GID(g.Raw).IsZero():
		return GIDEntry{}, ErrNoGID
	case err != nil:
		return GIDEntry{}, callError("ibv_query_gid_ex", err)
	}
	return publicGID(port, index, &g), nil
}

// QueryPKey returns a partition key.
func (c *kernelContext) QueryPKey(port, index int) (uint16, error) {
	key, err := c.c.QueryPKey(port, index)
	return key, callError("ibv_query_pkey", err)
}

// WaitEvent returns the next queued event.
func (c *kernelContext) WaitEvent(ctx context.Context) (AsyncEvent, error) {
	if err := ctx.Err(); err != nil {
		return AsyncEvent{}, err
	}
	return c.async.Wait(ctx)
}

// readEvents reads events from the device until the context is closed. The provider itself depends
// on them to learn that QPs have failed, so it does not wait for a call of WaitEvent.
func (c *kernelContext) readEvents() {
	for {
		var ev ibverbs.Event
		var failed error
		err := c.file.Wait(context.Background(), func() bool {
			for {
				// Go's poller is edge-triggered: an interrupted call must be repeated at once.
				if ev, failed = c.c.Event(); failed != syscall.EINTR {
					return failed != syscall.EAGAIN
				}
			}
		})
		if err != nil {
			return
		}
		if failed != nil {
			// The device is gone: every waiter must learn of it, and no other event will follow.
			c.async.Post(AsyncEvent{Type: EventDeviceFatal, Err: callError("ibv_get_async_event", failed)})
			return
		}
		c.event(AsyncEvent{Type: EventType(ev.Type), Port: int(ev.Port)}, ev.Cookie)
	}
}

// event handles an event and queues it.
func (c *kernelContext) event(ev AsyncEvent, cookie uint64) {
	if target, ok := byCookie(cookie).(asyncTarget); ok {
		target.event(&ev)
	} else if cookie != 0 {
		return // the object is gone
	}
	c.async.Post(ev)
}

// asyncTarget is an object that asynchronous events can refer to.
type asyncTarget interface {
	// event handles an event and sets its handle and its error.
	event(ev *AsyncEvent)
}

// compSource is a CQ whose events arrive through a completion channel.
type compSource interface {
	// notified returns the CQ's handle if an event of the device is meant for the program, or nil.
	notified() *CQ
}

// cookies maps numbers to Go objects. C holds the numbers in cq_context, qp_context and
// srq_context, and events return them.
var cookies struct {
	sync.RWMutex
	last    uint64
	objects map[uint64]any
}

// newCookie assigns a number to an object.
func newCookie(object any) uint64 {
	cookies.Lock()
	defer cookies.Unlock()
	if cookies.objects == nil {
		cookies.objects = make(map[uint64]any)
	}
	cookies.last++
	cookies.objects[cookies.last] = object
	return cookies.last
}

// dropCookie releases a number. Events that still carry it are ignored.
func dropCookie(cookie uint64) {
	cookies.Lock()
	defer cookies.Unlock()
	delete(cookies.objects, cookie)
}

// byCookie returns the object with this number, nil if it is gone.
func byCookie(cookie uint64) any {
	cookies.RLock()
	defer cookies.RUnlock()
	return cookies.objects[cookie]
}

// objectCount counts the context's objects of one kind. Exceeding the limit is then reported with
// the limit's name and value, where the kernel says only ENOMEM or EINVAL. The kernel also counts
// the objects of other contexts and processes, which are not visible here.
type objectCount struct {
	name string
	most int
	n    atomic.Int64
}

func (o *objectCount) add() error {
	if o.most <= 0 {
		return fmt.Errorf("%w: the device's %s is 0", ErrNotSupported, o.name)
	}
	if n := int(o.n.Add(1)); n > o.most {
		o.n.Add(-1)
		return limit(o.name, n, o.most)
	}
	return nil
}

func (o *objectCount) remove() { o.n.Add(-1) }

func (c *kernelContext) limitObjects() {
	a, n := c.attr, &c.counts
	n.pd.name, n.pd.most = "max_pd", a.MaxPD
	n.mr.name, n.mr.most = "max_mr", a.MaxMR
	n.mw.name, n.mw.most = "max_mw", a.MaxMW
	n.cq.name, n.cq.most = "max_cq", a.MaxCQ
	n.qp.name, n.qp.most = "max_qp", a.MaxQP
	n.srq.name, n.srq.most = "max_srq", a.MaxSRQ
	n.ah.name, n.ah.most = "max_ah", a.MaxAH
}
