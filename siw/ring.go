// SPDX-License-Identifier: BSD-3-Clause

package siw

// ring is a first-in first-out queue that grows and does not shrink. The zero value is empty. It is not locked.
type ring[T any] struct {
	slots      []T // length is a power of two
	head, tail uint
}

func (r *ring[T]) len() int { return int(r.tail - r.head) }

func (r *ring[T]) push(v T) {
	if r.len() == len(r.slots) {
		slots := make([]T, max(16, 2*len(r.slots)))
		for i := range r.len() {
			slots[i] = r.slots[(r.head+uint(i))&uint(len(r.slots)-1)]
		}
		r.slots, r.head, r.tail = slots, 0, uint(r.len())
	}
	r.slots[r.tail&uint(len(r.slots)-1)] = v
	r.tail++
}

// front returns the oldest element of a ring that is not empty.
func (r *ring[T]) front() *T { return &r.slots[r.head&uint(len(r.slots)-1)] }

func (r *ring[T]) pop() T {
	v := *r.front()
	r.head++
	return v
}
