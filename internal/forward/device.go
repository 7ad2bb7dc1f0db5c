// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// Prefix stands before the name of the device below.
const Prefix = "forward:"

// Wrap returns the device "forward:NAME", which is not registered.
func Wrap(below *verbs.Device) *verbs.Device { return verbs.NewDevice(&device{below}) }

// device is verbs.ProviderDevice and cm.Provider.
type device struct{ below *verbs.Device }

func (d *device) Info() verbs.DeviceInfo {
	info := d.below.Info()
	info.Name, info.Provider = Prefix+info.Name, "forward"
	return info
}

// Unwrap tells what kind of device it is.
func (d *device) Unwrap() verbs.ProviderDevice { return d.below.Provider() }

func (d *device) Open(*verbs.Context) (verbs.ProviderContext, error) {
	in, err := d.below.Open()
	if err != nil {
		return nil, err
	}
	return &vcontext{in: in}, nil
}

// vcontext is an open device (verbs.ProviderContext).
type vcontext struct {
	in     *verbs.Context
	owners sync.Map // the handle below -> the program's, of QPs, CQs and SRQs
}

// Unwrap has the table of GIDs.
func (c *vcontext) Unwrap() verbs.ProviderContext { return c.in.Provider() }

func (c *vcontext) QueryDevice() (verbs.DeviceAttr, error)     { return c.in.QueryDevice() }
func (c *vcontext) QueryPort(port int) (verbs.PortAttr, error) { return c.in.QueryPort(port) }
func (c *vcontext) Ops() verbs.OpSet                           { return c.in.Ops() }
func (c *vcontext) Close() error                               { return c.in.Close() }

// ownerOf returns the program's handle for one below, nil if it is gone.
func ownerOf[T any](c *vcontext, in *T) *T {
	owner, _ := c.owners.Load(in)
	h, _ := owner.(*T)
	return h
}

// WaitEvent passes on events of the device and of what the program still has.
func (c *vcontext) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		ev, err := c.in.WaitEvent(ctx)
		if err != nil {
			return verbs.AsyncEvent{}, err
		}
		known := true
		if ev.QP != nil {
			ev.QP = ownerOf(c, ev.QP)
			known = ev.QP != nil
		}
		if ev.CQ != nil {
			ev.CQ = ownerOf(c, ev.CQ)
			known = known && ev.CQ != nil
		}
		if ev.SRQ != nil {
			ev.SRQ = ownerOf(c, ev.SRQ)
			known = known && ev.SRQ != nil
		}
		if known {
			return ev, nil
		}
	}
}
