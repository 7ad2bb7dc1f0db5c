// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// CompChannel delivers the events of the CQs created with it. All methods may be called
// concurrently.
type CompChannel struct {
	node lifetime.Node
	ctx  *Context
	p    ProviderCompChannel

	released atomic.Bool // Release was called: close once no CQ uses it
	ended    sync.Once   // p is closed
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel(3)).
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	if err := c.enter("CreateCompChannel"); err != nil {
		return nil, err
	}
	defer c.node.Exit()
	p, err := c.p.CreateCompChannel()
	if err != nil {
		return nil, opError("CreateCompChannel", c.dev.Name(), err)
	}
	ch := &CompChannel{ctx: c, p: p}
	if err := ch.node.Init("CompChannel", ch.Close, &c.node); err != nil {
		return nil, opError("CreateCompChannel", c.dev.Name(), errors.Join(err, p.Close()))
	}
	return ch, nil
}

// Provider returns the provider's channel object.
func (ch *CompChannel) Provider() ProviderCompChannel { return ch.p }

// Wait waits for the next event and returns its CQ. The caller must rearm the CQ with
// [CQ.ReqNotify] and then poll until it is empty. Unlike in C, events need no acknowledgement. The
// error Is ctx.Err() when ctx is done, and [ErrClosed] when the channel is closed.
func (ch *CompChannel) Wait(ctx context.Context) (*CQ, error) {
	if ch.node.Closed() || ch.released.Load() {
		return nil, opError("CompChannel.Wait", ch.ctx.dev.Name(), ErrClosed)
	}
	cq, err := ch.p.Wait(ctx)
	if err != nil {
		return nil, opError("CompChannel.Wait", ch.ctx.dev.Name(), err)
	}
	return cq, nil
}

// Close closes the channel and unblocks every Wait. It is idempotent and may be called on nil. The
// error Is [ErrBusy] while CQs use the channel.
func (ch *CompChannel) Close() error {
	if ch == nil {
		return nil
	}
	first, err := ch.node.BeginClose()
	if !first || err != nil {
		return opError("CompChannel.Close", ch.ctx.dev.Name(), err)
	}
	ch.node.Drain(0) // wait for a CreateCQ in progress
	err = ch.end()
	ch.node.End()
	return opError("CompChannel.Close", ch.ctx.dev.Name(), err)
}

// Release unblocks every Wait, as Close does, but closes the channel together with its last CQ, or
// at once if it has none. It is for providers that wrap this device: the program's channel is
// closed before the inner CQs that use this one. It is idempotent and may be called on nil.
func (ch *CompChannel) Release() error {
	if ch == nil {
		return nil
	}
	ch.released.Store(true)
	return errors.Join(ch.closeUnused(), opError("CompChannel.Release", ch.ctx.dev.Name(), ch.end()))
}

// closeUnused closes the channel unless CQs use it; closing the last CQ calls it again.
func (ch *CompChannel) closeUnused() error {
	if err := ch.Close(); !errors.Is(err, ErrBusy) {
		return err
	}
	return nil
}

// end closes the provider's channel.
func (ch *CompChannel) end() (err error) {
	ch.ended.Do(func() { err = ch.p.Close() })
	return err
}
