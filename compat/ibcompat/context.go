// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// vcontext is an open device (verbs.ProviderContext, ext.Supporter).
type vcontext struct {
	in       *verbs.Context
	composed verbs.OpSet
	owners   sync.Map // the inner handle -> the program's, of QPs, CQs and SRQs

	keys    sync.RWMutex   // guards regions
	regions map[uint32]*mr // by local key
}

// Unwrap has the table of GIDs.
func (c *vcontext) Unwrap() verbs.ProviderContext { return c.in.Provider() }

func (c *vcontext) QueryDevice() (verbs.DeviceAttr, error)     { return c.in.QueryDevice() }
func (c *vcontext) QueryPort(port int) (verbs.PortAttr, error) { return c.in.QueryPort(port) }
func (c *vcontext) Ops() verbs.OpSet                           { return c.in.Ops() | c.composed }
func (c *vcontext) Close() error                               { return c.in.Close() }

// ownerOf returns the program's handle for an inner one, nil if it is gone.
func ownerOf[T any](c *vcontext, in *T) *T {
	owner, _ := c.owners.Load(in)
	h, _ := owner.(*T)
	return h
}

// known replaces an inner handle by the program's, and reports whether the program has it.
func known[T any](c *vcontext, h **T) bool {
	if *h == nil {
		return true
	}
	*h = ownerOf(c, *h)
	return *h != nil
}

// WaitEvent passes on events of the device and of what the program still has.
func (c *vcontext) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		ev, err := c.in.WaitEvent(ctx)
		if err != nil {
			return verbs.AsyncEvent{}, err
		}
		if known(c, &ev.QP) && known(c, &ev.CQ) && known(c, &ev.SRQ) {
			return ev, nil
		}
	}
}
