// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/internal/eventfd"
	"github.com/goverbs/goverbs/internal/ibverbs"
)

// kernelChannel delivers the device's completion events, and events that the provider raises for
// completions it generates itself.
type kernelChannel struct {
	c    ibverbs.Channel
	file *eventfd.File

	mu     sync.Mutex // guards the fields below; acquired after a CQ's lock
	cqs    int        // number of CQs that send their events here
	closed bool
	own    []*CQ // events raised by the provider
}

// CreateCompChannel creates a completion channel.
func (c *kernelContext) CreateCompChannel() (ProviderCompChannel, error) {
	made, err := c.c.CreateChannel()
	if err != nil {
		return nil, callError("ibv_create_comp_channel", err)
	}
	file, err := eventfd.NewNapping(made.FD(), c.dev.info.Name+" completions")
	if err != nil {
		_ = made.Destroy()
		return nil, err
	}
	return &kernelChannel{c: made, file: file}, nil
}

// Wait returns the CQ of the next event, skipping CQs that no longer exist.
func (ch *kernelChannel) Wait(ctx context.Context) (*CQ, error) {
	var owner *CQ
	var failed error
	err := ch.file.Wait(ctx, func() bool {
		for {
			if owner = ch.take(); owner != nil {
				return true
			}
			cookie, err := ch.c.Event()
			switch err {
			case syscall.EAGAIN:
				return false
			case syscall.EINTR:
				continue
			case nil:
			default:
				failed = callError("ibv_get_cq_event", err)
				return true
			}
			if cq, ok := byCookie(cookie).(compSource); ok {
				if owner = cq.notified(); owner != nil {
					return true
				}
			}
		}
	})
	if err == nil {
		err = failed
	}
	return owner, err
}

// post queues an event raised by the provider.
func (ch *kernelChannel) post(cq *CQ) {
	ch.mu.Lock()
	ch.own = append(ch.own, cq)
	ch.mu.Unlock()
	ch.file.Wake()
}

func (ch *kernelChannel) take() *CQ {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.own) == 0 {
		return nil
	}
	cq := ch.own[0]
	if ch.own = ch.own[1:]; len(ch.own) > 0 {
		ch.file.Wake() // otherwise the next waiter would sleep
	}
	return cq
}

// forget discards the events of a CQ.
func (ch *kernelChannel) forget(cq *CQ) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.own = slices.DeleteFunc(ch.own, func(o *CQ) bool { return o == cq })
}

// Close makes every Wait return, and destroys the channel at once or with its last CQ. It cannot
// always destroy it at once: the library keeps a channel while CQs use it, and the handle of a CQ
// closes its own channel first to end its waits.
func (ch *kernelChannel) Close() error {
	err := ch.file.Close()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.closed = true
	return errors.Join(err, ch.destroyUnused())
}

func (ch *kernelChannel) retain() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs++
}

func (ch *kernelChannel) release() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.cqs--
	return ch.destroyUnused()
}

func (ch *kernelChannel) destroyUnused() error {
	if !ch.closed || ch.cqs > 0 {
		return nil
	}
	return callError("ibv_destroy_comp_channel", ch.c.Destroy())
}
