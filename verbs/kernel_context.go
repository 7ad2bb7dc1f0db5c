// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/eventfd"
	"github.com/goverbs/goverbs/internal/queue"
)

// kernelContext is an open device.
type kernelContext struct {
	dev     *kernelDevice
	owner   *Context
	c       rawContext
	queues  deviceQueues
	attr    DeviceAttr
	ops     OpSet
	withInv uint // the library's flag of a completion that names an invalidated key
	file    *eventfd.File
	async   *queue.Events[AsyncEvent]

	counts struct{ pd, mr, mw, cq, qp, srq, ah objectCount }
}

// forkInit asks libibverbs once, before the first device is opened, to keep registered memory out
// of the way of fork.
var forkInit = sync.OnceFunc(func() {
	// The result is 0 or an errno: ENOSYS from a kernel that cannot do it, EINVAL if C code of the
	// program has registered memory already. Devices work then too; only a fork without exec is
	// unsafe, and Go does not do that.
	rawForkInit()
})

// Open opens the device and begins to read its events.
func (d *kernelDevice) Open(owner *Context) (ProviderContext, error) {
	forkInit()
	c := &kernelContext{dev: d, owner: owner, withInv: uint(WCWithInv)}
	var fd, rc int
	if c.c, fd, rc = rawOpen(d.info.Name, d.info.NodeGUID); rc != 0 {
		return nil, callError("ibv_open_device", rc)
	}
	p, err := c.start(fd)
	if err != nil {
		c.c.close()
		return nil, err
	}
	return p, nil
}

// start finds out what the device can do, begins to read its events from a descriptor, and returns
// the context for its driver.
func (c *kernelContext) start(events int) (ProviderContext, error) {
	var rc int
	if c.attr, rc = c.c.queryDevice(); rc != 0 {
		return nil, callError("ibv_query_device", rc)
	}
	d := driverOf(c.dev.info, c.attr)
	c.queues = libraryQueues{c.c}
	if d.extended != nil {
		rings := &ringQueues{c: c.c, fd: c.c.fd(), async: events, most: c.attr.MaxCQE}
		version, err := rings.version()
		if err != nil {
			return nil, err
		}
		if more := d.extended(version); more != nil {
			d, c.queues = *more, rings
		}
	}
	inline, more, err := c.dev.probe(c.c, d.inline, c.saysAtomicWrite())
	if err != nil {
		return nil, err
	}
	c.attr.MaxInlineData, c.ops = inline, d.ops|more
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
	attr, rc := c.c.queryDeviceEx()
	switch rc {
	case int(syscall.EOPNOTSUPP), int(syscall.ENOSYS):
		return DeviceAttrEx{}, nil
	}
	return attr, callError("ibv_query_device_ex", rc)
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
	if rc := c.c.close(); rc != 0 {
		return callError("ibv_close_device", rc)
	}
	return err
}

// QueryPort returns what the kernel says now.
func (c *kernelContext) QueryPort(port int) (PortAttr, error) {
	attr, rc := c.c.queryPort(port)
	return attr, callError("ibv_query_port", rc)
}

// QueryGID returns a row of the table.
func (c *kernelContext) QueryGID(port, index int) (GIDEntry, error) {
	e, rc := c.c.queryGID(port, index)
	switch {
	case rc == int(syscall.ENODATA), rc == int(syscall.ENOENT), rc == 0 && e.GID.IsZero():
		return GIDEntry{}, ErrNoGID
	case rc != 0:
		return GIDEntry{}, callError("ibv_query_gid_ex", rc)
	}
	return e, nil
}

// QueryPKey returns a partition key.
func (c *kernelContext) QueryPKey(port, index int) (uint16, error) {
	key, rc := c.c.queryPKey(port, index)
	return key, callError("ibv_query_pkey", rc)
}
