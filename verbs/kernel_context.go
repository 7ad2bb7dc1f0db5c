// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
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
