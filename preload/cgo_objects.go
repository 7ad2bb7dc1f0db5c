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

// object is what a handle stands for. If Close fails, the object is as before.
type object interface{ Close() error }

// Every post and poll looks for a handle, so that needs no lock: handles are in blocks, which are
// made when needed and never freed.
const (
	blockLen = 1 << 10
	blocks   = 1 << 12
)

// table has the objects of the process by their handles. Handle 0 is none.
type table struct {
	block [blocks]atomic.Pointer[[blockLen]atomic.Pointer[object]]

	mu   sync.Mutex // guards free and next
	free []uint32
	next uint32 // the lowest handle that has never been given
}

var objects = &table{next: 1}

// put gives an object a handle; it returns 0 if there is none left.
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

// take removes an object. Its handle will be given to another one.
func (t *table) take(h C.uint32_t) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.block[h/blockLen].Load()[h%blockLen].Store(nil)
	t.free = append(t.free, uint32(h))
}

// get returns the object of a handle, or false if there is none or it is not of type T.
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

// keep stores the handle of an object that has been made, or closes it if there is none left.
func keep(o object, to *C.uint32_t) C.int {
	h := objects.put(o)
	if h == 0 {
		_ = o.Close()
		return enomem
	}
	*to = h
	return 0
}
