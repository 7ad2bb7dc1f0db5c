// SPDX-License-Identifier: BSD-3-Clause

package engine

import "math/bits"

// ring is a first-in first-out queue that grows and does not shrink. The zero value is empty. It is not locked.
type ring[T any] struct {
	slots      []T // length is a power of two
	head, tail uint
}

// grown returns a ring with room for n elements.
func grown[T any](n int) ring[T] { return ring[T]{slots: make([]T, 1<<bits.Len(uint(max(n, 16)-1)))} }

func (r *ring[T]) len() int { return int(r.tail - r.head) }

// add makes a place at the end and returns it, as its last user has left it.
func (r *ring[T]) add() *T {
	if r.len() == len(r.slots) {
		slots := make([]T, max(16, 2*len(r.slots)))
		for i := range r.len() {
			slots[i] = *r.at(i)
		}
		r.slots, r.head, r.tail = slots, 0, uint(r.len())
	}
	r.tail++
	return r.at(r.len() - 1)
}

func (r *ring[T]) push(v T) { *r.add() = v }

// at returns element i, counted from the oldest.
func (r *ring[T]) at(i int) *T { return &r.slots[(r.head+uint(i))&uint(len(r.slots)-1)] }

func (r *ring[T]) pop() T {
	v := *r.at(0)
	r.head++
	return v
}

// drop removes the newest element.
func (r *ring[T]) drop() { r.tail-- }

func (r *ring[T]) clear() { r.head, r.tail = 0, 0 }
