// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// channel is a completion channel (verbs.ProviderCompChannel).
type channel struct {
	ctx *vcontext
	in  *verbs.CompChannel
}

func (c *vcontext) CreateCompChannel() (verbs.ProviderCompChannel, error) {
	in, err := c.in.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &channel{c, in}, nil
}

// Wait passes over events of CQs that the program has closed.
func (ch *channel) Wait(ctx context.Context) (*verbs.CQ, error) {
	for {
		in, err := ch.in.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if owner := ownerOf(ch.ctx, in); owner != nil {
			return owner, nil
		}
	}
}

// Close ends the waits. The channel below goes with its last CQ.
func (ch *channel) Close() error { return ch.in.Release() }

// cq is a completion queue (verbs.ProviderCQ).
type cq struct {
	ctx *vcontext
	in  *verbs.CQ
}

func (c *vcontext) CreateCQ(owner *verbs.CQ, cqe int, ch verbs.ProviderCompChannel, vector int) (verbs.ProviderCQ, error) {
	to, err := verbs.Own[*channel](ch)
	if err != nil {
		return nil, err
	}
	in, err := c.in.CreateCQ(verbs.CQConfig{CQE: cqe, Channel: to.in, CompVector: vector})
	if err != nil {
		return nil, err
	}
	c.owners.Store(in, owner)
	return &cq{c, in}, nil
}

// Unwrap has how the device sleeps in CQ.Wait, and the change of the size.
func (c *cq) Unwrap() verbs.ProviderCQ { return c.in.Provider() }

func (c *cq) Poll(wcs []verbs.WC) (int, error)   { return c.in.Poll(wcs) }
func (c *cq) ReqNotify(solicitedOnly bool) error { return c.in.ReqNotify(solicitedOnly) }
func (c *cq) CQE() int                           { return c.in.CQE() }

func (c *cq) Destroy() error {
	c.ctx.owners.Delete(c.in)
	return c.in.Close()
}
