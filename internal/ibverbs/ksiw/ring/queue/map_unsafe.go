// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// entriesOf returns mapped memory as the entries of a ring. The number of entries comes from the
// kernel. It is checked all the same, because an index beyond the memory would crash the process.
func entriesOf[E any](mem []byte, entries uint32, size int) ([]E, error) {
	var e E
	switch {
	case bits.OnesCount32(entries) != 1 || entries > 1<<24:
		return nil, fmt.Errorf("a ring of %d entries: not a power of two up to %d", entries, 1<<24)
	case len(mem) < size:
		return nil, fmt.Errorf("a ring of %d entries needs %d bytes, not %d", entries, size, len(mem))
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%unsafe.Alignof(e) != 0 {
		return nil, fmt.Errorf("a ring at address %p", p)
	}
	return unsafe.Slice((*E)(p), entries), nil
}

// controlOf returns the control word that follows the entries of a CQ. entriesOf has checked the
// length.
func controlOf(mem []byte, entries uint32) *control {
	return (*control)(unsafe.Pointer(&mem[int(entries)*completionSize]))
}

// Inline returns the space for the data of a FlagInline request, whose length is in its only
// element.
func (e *Send) Inline() *[MaxInline]byte { return (*[MaxInline]byte)(unsafe.Pointer(&e.SGEs[1])) }

// Operands returns the space for the operands of an atomic, whose only element receives the old
// value.
func (e *Send) Operands() *Operands { return (*Operands)(unsafe.Pointer(&e.SGEs[1])) }
