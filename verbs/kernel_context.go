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
	withInv uint32 // the library's flag of a completion that names an invalidated key
	file    *eventfd.File
	async   *queue.Events[AsyncEvent]

	counts struct{ pd, mr, mw, cq, qp, srq, ah objectCount }
}

// Open opens the device and begins to read its events.
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

// start finds out what the device can do, begins to read its events, and returns the context for
// its driver.
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

// QueryDevice returns what start learnt: attributes do not change while a device is open.
func (c *kernelContext) QueryDevice() (DeviceAttr, error) { return c.attr, nil }

// QueryDeviceEx asks the device. Libraries and kernels without the call know no extended
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

// hasODP reports whether the device says that it has on-demand paging.
func (c *kernelContext) hasODP() bool {
	attr, err := c.QueryDeviceEx()
	return err == nil && attr.ODP.General&ODPSupport != 0
}

// saysAtomicWrite reports whether the device says that it has Atomic Writes.
func (c *kernelContext) saysAtomicWrite() bool {
	attr, err := c.QueryDeviceEx()
	return err == nil && attr.DeviceCapFlagsEx&DeviceAtomicWrite != 0
}

// Ops is what the device's driver does, see driverOf and probe.
func (c *kernelContext) Ops() OpSet { return c.ops }

// Close ends every WaitEvent and the reader of events, and closes the device.
func (c *kernelContext) Close() error {
	err := c.file.Close()
	c.async.Close()
	if failed := c.c.Close(); failed != nil {
		return callError("ibv_close_device", failed)
	}
	return err
}

// QueryPort returns what the kernel says now.
func (c *kernelContext) QueryPort(port int) (PortAttr, error) {
	var attr ibverbs.PortAttr
	if err := c.c.QueryPort(port, &attr); err != nil {
		return PortAttr{}, callError("ibv_query_port", err)
	}
	return publicPortAttr(&attr), nil
}

// QueryGID returns a row of the table.
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

// WaitEvent takes the next event out of the queue.
func (c *kernelContext) WaitEvent(ctx context.Context) (AsyncEvent, error) {
	if err := ctx.Err(); err != nil {
		return AsyncEvent{}, err
	}
	return c.async.Wait(ctx)
}

// readEvents takes events from the device until the context is closed. The provider needs them
// itself, to learn of the end of QPs, so it does not wait for somebody to call WaitEvent.
func (c *kernelContext) readEvents() {
	for {
		var ev ibverbs.Event
		var failed error
		err := c.file.Wait(context.Background(), func() bool {
			for {
				// Go's poller tells of an event once: what was interrupted is done again at once.
				if ev, failed = c.c.Event(); failed != syscall.EINTR {
					return failed != syscall.EAGAIN
				}
			}
		})
		if err != nil {
			return
		}
		if failed != nil {
			// The device is gone: whatever waits must learn of it, and there will be no other
			// event.
			c.async.Post(AsyncEvent{Type: EventDeviceFatal, Err: callError("ibv_get_async_event", failed)})
			return
		}
		c.event(AsyncEvent{Type: EventType(ev.Type), Port: int(ev.Port)}, ev.Cookie)
	}
}

// event acts on an event and queues it.
func (c *kernelContext) event(ev AsyncEvent, cookie uint64) {
	if target, ok := byCookie(cookie).(asyncTarget); ok {
		target.event(&ev)
	} else if cookie != 0 {
		return // of an object that is gone
	}
	c.async.Post(ev)
}

// asyncTarget is what an asynchronous event can be about.
type asyncTarget interface {
	// event acts on an event and puts the handle and the reason into it.
	event(ev *AsyncEvent)
}

// compSource is a CQ whose events come through a channel.
type compSource interface {
	// notified returns the handle if an event of the device's is one for the program, or else nil.
	notified() *CQ
}

// cookies translates the numbers that stand for Go objects in C, in the cq_context, qp_context and
// srq_context that events bring back.
var cookies struct {
	sync.RWMutex
	last    uint64
	objects map[uint64]any
}

// newCookie returns the number of an object.
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

// dropCookie forgets a number. An event that still names it is of no object.
func dropCookie(cookie uint64) {
	cookies.Lock()
	defer cookies.Unlock()
	delete(cookies.objects, cookie)
}

// byCookie returns the object of a number, nil if it is gone.
func byCookie(cookie uint64) any {
	cookies.RLock()
	defer cookies.RUnlock()
	return cookies.objects[cookie]
}

// objectCount counts the context's objects of one kind, so that the one too many is refused by a
// name and a number: the kernel says ENOMEM, or EINVAL. Objects of other contexts and processes
// count in the kernel only.
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
