// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// wcQueue is a queue of completions.
type wcQueue struct {
	wcs  []WC
	head int
}

func (q *wcQueue) len() int { return len(q.wcs) - q.head }

func (q *wcQueue) put(wcs ...WC) { q.wcs = append(q.wcs, wcs...) }

func (q *wcQueue) take(wcs []WC) int {
	n := copy(wcs, q.wcs[q.head:])
	if q.head += n; q.head == len(q.wcs) {
		q.wcs, q.head = q.wcs[:0], 0
	}
	return n
}
