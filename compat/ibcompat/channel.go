// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"context"

	"github.com/goverbs/goverbs/verbs"
)

// channel is a completion channel (verbs.ProviderCompChannel). The events are those of the inner CQs. One that a request of
// our own has caused reaches the program too: it finds nothing to poll, arms the CQ again and waits, as after any event that
// it has polled the completion of before. Its poll goes on with what is being composed.
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

// Close ends the waits. The inner channel goes with its last CQ.
func (ch *channel) Close() error { return ch.in.Release() }
