// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// holder is an object that stands for one of the device below: one of this package, or a type that
// embeds it.
type holder[T any] interface{ below() *T }

// below is the handle below the object of a provider.
func below[T, P any](p P) (*T, error) {
	h, ok := verbs.Ability[holder[T]](p)
	if !ok {
		return nil, &verbs.ForeignError{Want: fmt.Sprintf("what wraps a %T", (*T)(nil)), Got: fmt.Sprintf("%T", p)}
	}
	return h.below(), nil
}

// Context is an open device (verbs.ProviderContext).
type Context struct {
	In     *verbs.Context
	owners owners
}

func (c *Context) below() *verbs.Context { return c.In }

// Unwrap has the table of GIDs.
func (c *Context) Unwrap() verbs.ProviderContext { return c.In.Provider() }

func (c *Context) QueryDevice() (verbs.DeviceAttr, error)     { return c.In.QueryDevice() }
func (c *Context) QueryPort(port int) (verbs.PortAttr, error) { return c.In.QueryPort(port) }
func (c *Context) Ops() verbs.OpSet                           { return c.In.Ops() }
func (c *Context) Close() error                               { return c.In.Close() }

// WaitEvent passes on events of the device and of what the program still has.
func (c *Context) WaitEvent(ctx context.Context) (verbs.AsyncEvent, error) {
	for {
		ev, err := c.In.WaitEvent(ctx)
		if err != nil {
			return verbs.AsyncEvent{}, err
		}
		if known(&c.owners, &ev.QP) && known(&c.owners, &ev.CQ) && known(&c.owners, &ev.SRQ) {
			return ev, nil
		}
	}
}

// owners has the program's handle for each QP, CQ and SRQ below.
type owners struct{ m sync.Map }

// ownerOf returns the program's handle, nil if it is gone.
func ownerOf[T any](o *owners, in *T) *T {
	owner, _ := o.m.Load(in)
	h, _ := owner.(*T)
	return h
}

// known replaces a handle below by the program's, and reports whether the program has it.
func known[T any](o *owners, h **T) bool {
	if *h == nil {
		return true
	}
	*h = ownerOf(o, *h)
	return *h != nil
}
