// SPDX-License-Identifier: BSD-3-Clause

package main

import "C" // so that it is built with the files that call C

import (
	"sync"
	"unsafe"
)

// owners has the shim's object of every handle that events can name. An object is removed when its handle has been closed, and
// then no event for it is being told and none will be: the shim frees it.
var owners = ownerMap{of: make(map[any]unsafe.Pointer)}

type ownerMap struct {
	mu sync.RWMutex // guards of, and is held while an event is told
	of map[any]unsafe.Pointer
}

func (m *ownerMap) put(handle any, owner unsafe.Pointer) {
	m.mu.Lock()
	m.of[handle] = owner
	m.mu.Unlock()
}

func (m *ownerMap) drop(handle any) {
	m.mu.Lock()
	delete(m.of, handle)
	m.mu.Unlock()
}

// tell calls f with the owner of a handle, unless it has none any more.
func (m *ownerMap) tell(handle any, f func(owner unsafe.Pointer)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if owner := m.of[handle]; owner != nil {
		f(owner)
	}
}
