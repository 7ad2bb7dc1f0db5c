// SPDX-License-Identifier: BSD-3-Clause

package queue

import "math/bits"

// Ring is a first-in first-out queue that grows and does not shrink. Its places are used again as
// their last users have left them, so that what belongs to a place (a list, a buffer) is allocated
// once. The zero value is empty. It is not locked.
type Ring[T any] struct {
	places     []T // length is a power of two
	head, tail uint
}

// least is the number of places of a ring that has any.
const least = 16

// Grown returns an empty ring with n places or more.
func Grown[T any](n int) Ring[T] {
	return Ring[T]{places: make([]T, 1<<bits.Len(uint(max(n, least)-1)))}
}

// Places returns all places, for what is to be prepared in each. It is valid until the ring grows.
func (r *Ring[T]) Places() []T { return r.places }

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return int(r.tail - r.head) }

// Append adds elements at the end.
func (r *Ring[T]) Append(vs []T) {
	for i := range vs {
		*r.Add() = vs[i]
	}
}

// At returns element i, counted from the oldest. It is valid until it is removed or the ring grows.
func (r *Ring[T]) At(i int) *T { return &r.places[(r.head+uint(i))&uint(len(r.places)-1)] }

// Add makes a place at the end and returns it, as its last user has left it.
func (r *Ring[T]) Add() *T {
	if r.Len() == len(r.places) {
		places := make([]T, max(least, 2*len(r.places)))
		for i := range r.Len() {
			places[i] = *r.At(i)
		}
		r.places, r.head, r.tail = places, 0, uint(r.Len())
	}
	r.tail++
	return r.At(r.Len() - 1)
}

// Push adds an element at the end.
func (r *Ring[T]) Push(v T) { *r.Add() = v }

// Pop removes the oldest element of a ring that is not empty, and returns it.
func (r *Ring[T]) Pop() T {
	v := *r.At(0)
	r.head++
	return v
}

// Take moves the oldest elements into to, as many as there are and have room, and returns their
// number.
func (r *Ring[T]) Take(to []T) int {
	n := min(len(to), r.Len())
	for i := range n {
		to[i] = *r.At(i)
	}
	r.head += uint(n)
	return n
}

// Drop removes the newest element of a ring that is not empty.
func (r *Ring[T]) Drop() { r.tail-- }

// Clear removes all elements.
func (r *Ring[T]) Clear() { r.head, r.tail = 0, 0 }
