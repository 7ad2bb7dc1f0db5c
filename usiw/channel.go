// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// channel delivers completion events (verbs.ProviderCompChannel). A CQ is queued at most once:
// unread events of the same CQ merge into one.
type channel struct {
	ready   chan struct{} // holds a token while the queue is not empty
	closed  chan struct{}
	waiters sync.WaitGroup
	armed   atomic.Int32 // armed CQs that have a watch

	looking atomic.Pointer[watch] // the watch kept by a goroutine asleep in Wait

	mu       sync.Mutex // guards the fields below; taken after a cq's mu
	queue    []*cq
	shut     bool
	watches  map[*watch]int // the watches of the channel's CQs, and how many of these CQs each watch has
	sleepers int            // goroutines that are asleep in Wait, or about to sleep
}

func (v *vcontext) CreateCompChannel() (verbs.ProviderCompChannel, error) {
	if v.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	return &channel{ready: make(chan struct{}, 1), closed: make(chan struct{}), watches: make(map[*watch]int)}, nil
}

// notify queues an event of q, and reports whether a goroutine is asleep in Wait. The caller holds
// q.mu.
func (ch *channel) notify(q *cq) (woken bool) {
	ch.mu.Lock()
	if !q.queued {
		q.queued = true
		ch.queue = append(ch.queue, q)
	}
	woken = ch.sleepers > 0
	ch.mu.Unlock()
	queue.Signal(ch.ready)
	ch.wake()
	return woken
}

// forget removes q from the event queue.
func (ch *channel) forget(q *cq) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, o := range ch.queue {
		if o == q {
			ch.queue = append(ch.queue[:i], ch.queue[i+1:]...)
			break
		}
	}
}

// setWatch records that the watch of one of the CQs changes from was to is; nil means no watch. The
// caller holds the CQ's mu.
func (ch *channel) setWatch(was, is *watch) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if was != nil {
		if ch.watches[was]--; ch.watches[was] == 0 {
			delete(ch.watches, was)
		}
	}
	if is != nil {
		ch.watches[is]++
	}
}

// relied reports whether a program that arms a CQ depends on the reader of the CQ's watch. It does
// not if all CQs of the channel share one watch and no goroutine is asleep in Wait: the next
// goroutine to sleep there can keep this watch itself.
func (ch *channel) relied() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.sleepers > 0 || len(ch.watches) != 1
}

func (ch *channel) Wait(ctx context.Context) (*verbs.CQ, error) {
	q, slept, err := ch.wait(ctx)
	if err != nil {
		return nil, err
	}
	if slept {
		q.slept()
	}
	return q.owner, nil
}

// wait returns the CQ of the oldest event, and whether the goroutine slept.
func (ch *channel) wait(ctx context.Context) (q *cq, slept bool, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.shut {
		return nil, false, verbs.ErrClosed
	}
	ch.waiters.Add(1)
	defer ch.waiters.Done()
	for {
		switch {
		case len(ch.queue) > 0:
			return ch.next(), slept, nil
		case ch.shut:
			return nil, slept, verbs.ErrClosed
		case ctx.Err() != nil:
			return nil, slept, ctx.Err()
		}
		var w *watch
		if len(ch.watches) == 1 {
			for w = range ch.watches {
			}
		}
		ch.sleepers++ // before w.enter, so that a goroutine that arms a CQ from here on recalls the reader
		ch.mu.Unlock()
		if w != nil && w.enter(ch) {
			slept = ch.keep(ctx, w) || slept
		} else {
			select {
			case <-ch.ready:
			case <-ctx.Done():
			case <-ch.closed:
			}
			slept = true
		}
		ch.mu.Lock()
		ch.sleepers--
	}
}

// next removes the oldest event and returns its CQ. The caller holds mu.
func (ch *channel) next() *cq {
	q := ch.queue[0]
	ch.queue = ch.queue[:copy(ch.queue, ch.queue[1:])]
	q.queued = false
	if len(ch.queue) > 0 {
		queue.Signal(ch.ready)
	}
	return q
}

func (ch *channel) Close() error {
	ch.mu.Lock()
	ch.shut = true
	ch.mu.Unlock()
	close(ch.closed)
	ch.wake()
	ch.waiters.Wait()
	return nil
}
