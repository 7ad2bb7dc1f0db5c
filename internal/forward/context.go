// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// holder is an object backed by an object of the device below: one of this package, or a type that
// embeds one.
type holder[T any] interface{ below() *T }

// below returns the handle of the device below that backs a provider's object.
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

// Unwrap gives access to the GID table.
func (c *Context) Unwrap() verbs.ProviderContext { return c.In.Provider() }

func (c *Context) QueryDevice() (verbs.DeviceAttr, error)     { return c.In.QueryDevice() }
func (c *Context) QueryPort(port int) (verbs.PortAttr, error) { return c.In.QueryPort(port) }
func (c *Context) Ops() verbs.OpSet                           { return c.In.Ops() }
func (c *Context) Close() error                               { return c.In.Close() }

// WaitEvent returns events of the device and of objects that the program has not closed.
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

// owners maps each QP, CQ and SRQ below to the program's handle.
type owners struct{ m sync.Map }

// ownerOf returns the program's handle, nil if it is closed.
func ownerOf[T any](o *owners, in *T) *T {
	owner, _ := o.m.Load(in)
	h, _ := owner.(*T)
	return h
}

// known replaces a handle below with the program's handle. It reports whether the program still has
// one.
func known[T any](o *owners, h **T) bool {
	if *h == nil {
		return true
	}
	*h = ownerOf(o, *h)
	return *h != nil
}
