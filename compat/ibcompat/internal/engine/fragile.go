// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"github.com/goverbs/goverbs/internal/regmem"
	"github.com/goverbs/goverbs/verbs"
)

// With Config.GuardMemory the program may unmap registered memory at any time, as on package usiw's
// devices. Every access of the engine to registered memory is in this file. The caller has obtained
// mem and holds the region's mu for reading; these methods release it. If the memory is gone they
// return the error for an invalid key.

// place writes data to memory of the region.
func (m *mr) place(mem, data []byte) *verbs.AccessError {
	defer m.mu.RUnlock()
	if !m.fragile {
		regmem.Place(mem, data)
		return nil
	}
	return m.used(mem, regmem.Guard(mem, func() { regmem.Place(mem, data) }))
}

// fetch reads memory of the region.
func (m *mr) fetch(b, mem []byte) *verbs.AccessError {
	defer m.mu.RUnlock()
	if !m.fragile {
		regmem.Fetch(b, mem)
		return nil
	}
	return m.used(mem, regmem.Guard(mem, func() { regmem.Fetch(b, mem) }))
}

// change performs an atomic operation and returns the original value.
func (m *mr) change(mem []byte, operation func([]byte) uint64) (v uint64, err *verbs.AccessError) {
	defer m.mu.RUnlock()
	if !m.fragile {
		return operation(mem), nil
	}
	err = m.used(mem, regmem.Guard(mem, func() { v = operation(mem) }))
	return v, err
}

// used invalidates the region if its memory is gone.
func (m *mr) used(mem []byte, ok bool) *verbs.AccessError {
	if ok {
		return nil
	}
	m.vanished.Store(true)
	return &verbs.AccessError{Fault: verbs.AccessBadKey, Key: m.in.LKey(), Addr: m.iova + uint64(cap(m.mem)-cap(mem)),
		Length: uint64(len(mem))}
}
