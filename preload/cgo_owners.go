// SPDX-License-Identifier: BSD-3-Clause

package main

import "C" // built only together with the cgo files

import (
	"sync"
	"unsafe"
)

// owners maps each handle that can occur in events to its object in the shim. An object is removed
// after its handle is closed. From then on it gets no events, so the shim can free it.
var owners = ownerMap{of: make(map[any]unsafe.Pointer)}

type ownerMap struct {
	mu sync.RWMutex // guards of; held for reading while an event is passed to the shim
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

// tell calls f with the owner of a handle, unless the owner was removed.
func (m *ownerMap) tell(handle any, f func(owner unsafe.Pointer)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if owner := m.of[handle]; owner != nil {
		f(owner)
	}
}
