// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import "sync"

// cookies translates the numbers that stand for Go objects in C, in the cq_context, qp_context and
// srq_context that events bring back.
var cookies struct {
	sync.RWMutex
	last    uint64
	objects map[uint64]any
}

// newCookie returns the number of an object.
func newCookie(object any) uint64 {
	cookies.Lock()
	defer cookies.Unlock()
	if cookies.objects == nil {
		cookies.objects = make(map[uint64]any)
	}
	cookies.last++
	cookies.objects[cookies.last] = object
	return cookies.last
}

// dropCookie forgets a number. An event that still names it is of no object.
func dropCookie(cookie uint64) {
	cookies.Lock()
	defer cookies.Unlock()
	delete(cookies.objects, cookie)
}

// byCookie returns the object of a number, nil if it is gone.
func byCookie(cookie uint64) any {
	cookies.RLock()
	defer cookies.RUnlock()
	return cookies.objects[cookie]
}
