// SPDX-License-Identifier: BSD-3-Clause

package main

import "C" // so that it is built with the files that call C

import (
	"sync"
	"unsafe"
)

// owners has, for each handle that events can name, the object of the shim. An object is removed
// when its handle has been closed. From then on no event is told to it, so the shim can free it.
var owners = ownerMap{of: make(map[any]unsafe.Pointer)}

type ownerMap struct {
	mu sync.RWMutex // guards of; held for reading while the shim is told of an event
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

// tell calls f with the owner of a handle, unless the owner has been removed.
func (m *ownerMap) tell(handle any, f func(owner unsafe.Pointer)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if owner := m.of[handle]; owner != nil {
		f(owner)
	}
}
