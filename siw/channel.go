// SPDX-License-Identifier: BSD-3-Clause

package siw

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// channel delivers completion events (verbs.ProviderCompChannel). A CQ waits in it at most once: events that nobody has
// read yet are one event.
type channel struct {
	ready   chan struct{} // holds a token while CQs wait
	closed  chan struct{}
	waiters sync.WaitGroup
	sent    atomic.Uint64 // events

	looking atomic.Pointer[conn] // for which a goroutine sleeps in lookOut
	out     lookingOut           // that goroutine's

	mu    sync.Mutex // guards what follows; taken below a cq's mu
	queue []*cq
	shut  bool
}

func (v *vcontext) CreateCompChannel() (verbs.ProviderCompChannel, error) {
	if v.dev.guard.Closed() {
		return nil, verbs.ErrClosed
	}
	ch := &channel{ready: make(chan struct{}, 1), closed: make(chan struct{})}
	ch.out.f = ch.look
	return ch, nil
}

// notify queues an event of q. The caller holds q.mu.
func (ch *channel) notify(q *cq) {
	ch.mu.Lock()
	if !q.queued {
		q.queued = true
		ch.queue = append(ch.queue, q)
	}
	ch.mu.Unlock()
	ch.sent.Add(1)
	signal(ch.ready)
	ch.wake()
}

// forget takes the events of q out.
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

func (ch *channel) Wait(ctx context.Context) (*verbs.CQ, error) {
	ch.mu.Lock()
	if ch.shut {
		ch.mu.Unlock()
		return nil, verbs.ErrClosed
	}
	ch.waiters.Add(1)
	defer ch.waiters.Done()
	for {
		if len(ch.queue) > 0 {
			q := ch.queue[0]
			copy(ch.queue, ch.queue[1:])
			ch.queue = ch.queue[:len(ch.queue)-1]
			q.queued = false
			if len(ch.queue) > 0 {
				signal(ch.ready)
			}
			ch.mu.Unlock()
			return q.owner, nil
		}
		ch.mu.Unlock()
		select {
		case <-ch.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ch.closed:
			return nil, verbs.ErrClosed
		}
		ch.mu.Lock()
	}
}

func (ch *channel) Close() error {
	ch.mu.Lock()
	ch.shut = true
	ch.mu.Unlock()
	close(ch.closed)
	ch.wake()
	ch.waiters.Wait()
	ch.out.release()
	return nil
}
