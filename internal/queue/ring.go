// SPDX-License-Identifier: BSD-3-Clause

package queue

import "math/bits"

// Ring is a first-in first-out queue that grows but never shrinks. A place is reused as its last
// user left it, so that what belongs to the place, such as a slice, is allocated only once. The
// zero value is empty. A Ring has no lock.
type Ring[T any] struct {
	places     []T // length is a power of two
	head, tail uint
}

// least is the minimum number of places of a non-empty ring.
const least = 16

// Grown returns an empty ring with at least n places.
func Grown[T any](n int) Ring[T] {
	return Ring[T]{places: make([]T, 1<<bits.Len(uint(max(n, least)-1)))}
}

// Places returns all places, for preparing each of them. The slice is valid until the ring grows.
func (r *Ring[T]) Places() []T { return r.places }

// Len returns the number of elements.
func (r *Ring[T]) Len() int { return int(r.tail - r.head) }

// Append adds elements at the end.
func (r *Ring[T]) Append(vs []T) {
	for i := range vs {
		*r.Add() = vs[i]
	}
}

// At returns the i-th element, counted from the oldest. The pointer is valid until the element is
// removed or the ring grows.
func (r *Ring[T]) At(i int) *T { return &r.places[(r.head+uint(i))&uint(len(r.places)-1)] }

// Add adds a place at the end and returns it as its last user left it.
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

// Pop removes and returns the oldest element of a non-empty ring.
func (r *Ring[T]) Pop() T {
	v := *r.At(0)
	r.head++
	return v
}

// Take moves the oldest elements to to, as many as fit, and returns their number.
func (r *Ring[T]) Take(to []T) int {
	n := min(len(to), r.Len())
	for i := range n {
		to[i] = *r.At(i)
	}
	r.head += uint(n)
	return n
}

// Drop removes the newest element of a non-empty ring.
func (r *Ring[T]) Drop() { r.tail-- }

// Clear removes all elements.
func (r *Ring[T]) Clear() { r.head, r.tail = 0, 0 }
