// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
)

// object is what a handle refers to. If Close fails, the object is unchanged.
type object interface{ Close() error }

// Every post and poll looks up a handle, so lookups need no lock: handles are allocated in blocks
// that are created on demand and never freed.
const (
	blockLen = 1 << 10
	blocks   = 1 << 12
)

// table maps handles to the objects of the process. Handle 0 is no object.
type table struct {
	block [blocks]atomic.Pointer[[blockLen]atomic.Pointer[object]]

	mu   sync.Mutex // guards free and next
	free []uint32
	next uint32 // the lowest handle never used
}

var objects = &table{next: 1}

// put assigns a handle to an object. It returns 0 if there are no more handles.
func (t *table) put(o object) C.uint32_t {
	t.mu.Lock()
	defer t.mu.Unlock()
	var h uint32
	switch {
	case len(t.free) > 0:
		h = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case t.next == blocks*blockLen:
		return 0
	default:
		h = t.next
		t.next++
		if t.block[h/blockLen].Load() == nil {
			t.block[h/blockLen].Store(new([blockLen]atomic.Pointer[object]))
		}
	}
	t.block[h/blockLen].Load()[h%blockLen].Store(&o)
	return C.uint32_t(h)
}

// take removes an object. Its handle will be reused.
func (t *table) take(h C.uint32_t) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block[h/blockLen].Load()[h%blockLen].Store(nil)
	t.free = append(t.free, uint32(h))
}

// get returns the object with a handle, or false if there is none or it is not of type T.
func get[T any](h C.uint32_t) (o T, ok bool) {
	if h >= blocks*blockLen {
		return o, false
	}
	b := objects.block[h/blockLen].Load()
	if b == nil {
		return o, false
	}
	p := b[h%blockLen].Load()
	if p == nil {
		return o, false
	}
	o, ok = (*p).(T)
	return o, ok
}

//export rnic_close
func rnic_close(h C.uint32_t) C.int {
	o, ok := get[object](h)
	if !ok {
		return einval
	}
	if err := o.Close(); err != nil {
		return errno(err)
	}
	objects.take(h)
	return 0
}

// keep stores the handle of a new object in *to, or closes the object if there are no more handles.
func keep(o object, to *C.uint32_t) C.int {
	h := objects.put(o)
	if h == 0 {
		_ = o.Close()
		return enomem
	}
	*to = h
	return 0
}
