// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"context"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
)

// backlog is the capacity of the queue. A further event replaces the oldest.
const backlog = 1024

// Events is the queue of a context's asynchronous events (ibv_get_async_event(3)). All methods may
// be called concurrently.
//
// An event refers to the object that it is about, with all its memory, so it must not outlive the
// object. Post drops events of closed objects. Sweep, called once the closing of an object has
// begun, removes those already queued.
type Events[T any] struct {
	stale  func(T) bool  // reports whether the event is of a closed object
	ready  chan struct{} // holds a token while events are queued
	closed chan struct{}

	mu     sync.Mutex // guards queued
	queued Ring[T]
}

// NewEvents returns an empty queue. stale reports whether the object of an event has been closed or
// is being closed.
func NewEvents[T any](stale func(T) bool) *Events[T] {
	return &Events[T]{stale: stale, ready: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Post queues an event. It never blocks.
func (e *Events[T]) Post(ev T) {
	e.mu.Lock()
	if e.stale(ev) { // checked under mu, so that Sweep finds every queued event
		e.mu.Unlock()
		return
	}
	if e.queued.Len() == backlog {
		e.take()
	}
	e.queued.Push(ev)
	e.mu.Unlock()
	Signal(e.ready)
}

// Sweep removes the events of closed objects.
func (e *Events[T]) Sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for range e.queued.Len() {
		if ev := e.take(); !e.stale(ev) {
			e.queued.Push(ev)
		}
	}
}

// take removes and returns the oldest event. Its place keeps no handle alive. The caller holds mu.
func (e *Events[T]) take() T {
	var none T
	place := e.queued.At(0)
	ev := e.queued.Pop()
	*place = none
	return ev
}

// Wait returns the oldest event. It waits for one until ctx is done or the queue is closed
// ([lifetime.ErrClosed]).
func (e *Events[T]) Wait(ctx context.Context) (T, error) {
	var none T
	for {
		e.mu.Lock()
		if n := e.queued.Len(); n > 0 {
			ev := e.take()
			if n > 1 {
				Signal(e.ready) // for another waiting goroutine
			}
			e.mu.Unlock()
			return ev, nil
		}
		e.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			return none, ctx.Err()
		case <-e.closed:
			return none, lifetime.ErrClosed
		}
	}
}

// Close makes every Wait that finds no event return. It must be called once.
func (e *Events[T]) Close() { close(e.closed) }
