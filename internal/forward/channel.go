// SPDX-License-Identifier: BSD-3-Clause

package forward

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// channel is a completion channel (verbs.ProviderCompChannel).
type channel struct {
	ctx *Context
	in  *verbs.CompChannel
}

// CreateCompChannel returns a channel that delivers the events of the CQs below.
func (c *Context) CreateCompChannel() (verbs.ProviderCompChannel, error) {
	in, err := c.In.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &channel{c, in}, nil
}

func (ch *channel) below() *verbs.CompChannel { return ch.in }

// Wait skips events of CQs that the program has closed.
func (ch *channel) Wait(ctx context.Context) (*verbs.CQ, error) {
	for {
		in, err := ch.in.Wait(ctx)
		if err != nil {
			return nil, err
		}
		if owner := ownerOf(&ch.ctx.owners, in); owner != nil {
			return owner, nil
		}
	}
}

// Close makes every Wait return. The channel below is destroyed with its last CQ.
func (ch *channel) Close() error { return ch.in.Release() }
