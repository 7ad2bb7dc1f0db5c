// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// channel delivers completion events (verbs.ProviderCompChannel). A CQ is queued at most once.
type channel struct {
	ready  chan struct{} // holds a token while the queue is not empty
	closed chan struct{}

	mu    sync.Mutex // guards queue; taken after a cq's mu
	queue []*cq
}

func (c *vcontext) CreateCompChannel() (verbs.ProviderCompChannel, error) {
	return &channel{ready: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

func (ch *channel) notify(c *cq) {
	ch.mu.Lock()
	if !slices.Contains(ch.queue, c) {
		ch.queue = append(ch.queue, c)
	}
	ch.mu.Unlock()
	queue.Signal(ch.ready)
}

func (ch *channel) forget(c *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.queue = slices.DeleteFunc(ch.queue, func(o *cq) bool { return o == c })
}

// take removes and returns the oldest event, or nil.
func (ch *channel) take() *cq {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.queue) == 0 {
		return nil
	}
	c := ch.queue[0]
	ch.queue = ch.queue[:copy(ch.queue, ch.queue[1:])]
	if len(ch.queue) > 0 {
		queue.Signal(ch.ready)
	}
	return c
}

func (ch *channel) Wait(ctx context.Context) (*verbs.CQ, error) {
	for {
		select {
		case <-ch.closed:
			return nil, verbs.ErrClosed
		default:
		}
		if c := ch.take(); c != nil {
			return c.owner, nil
		}
		select {
		case <-ch.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ch.closed:
		}
	}
}

func (ch *channel) Close() error {
	close(ch.closed)
	return nil
}
