// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/mapmem"
)

// Word returns the 8 bytes at offset off of the region as an integer that this program and its
// peers can modify atomically. It is in host byte order, as are the operands of a peer's atomics.
// Its address must be a multiple of 8; memory from AllocMR starts at such an address. The error Is
// [ErrBounds] if the bytes are not all inside the region.
//
// Load and Store never see or leave a partial value, and order memory as in Go's memory model
// (package sync/atomic): a program that loads a value which a peer placed last also sees what that
// peer placed before it. Add, CompareAndSwap and the other read-modify-write methods are atomic
// with respect to a peer's atomics only if the device's AtomicCap is [AtomicGlob], as on the
// user-space RNIC, which uses sync/atomic itself. With [AtomicHCA] a peer's atomic may fall between
// the read and the write, and one update is lost. On such a device this program, too, must modify
// the value by an atomic request to its own device.
//
// The result points into the region: it must not be used after Close if the memory is from AllocMR,
// nor after Rereg replaces the memory. Word does not allocate; the result can also be kept.
func (m *MR) Word(off int) (*atomic.Uint64, error) {
	const op = "MR.Word"
	if m == nil {
		return nil, opError(op, "", errNoRegion)
	}
	if !m.node.Enter() {
		return nil, opError(op, m.ctx.dev.Name(), ErrClosed)
	}
	defer m.node.Exit()
	w, err := m.word(off)
	return w, opError(op, m.ctx.dev.Name(), err)
}

func (m *MR) word(off int) (*atomic.Uint64, error) {
	switch {
	case m.foreign > 0:
		return nil, fmt.Errorf("%w: the program cannot access the memory of a dma-buf", ErrNotSupported)
	case off < 0 || off > len(m.buf)-8:
		return nil, fmt.Errorf("%w: offset %d length 8 of %d", ErrBounds, off, len(m.buf))
	}
	w, ok := mapmem.Word(m.buf[off : off+8])
	if !ok {
		return nil, invalid("offset %d: the address of a word is a multiple of 8", off)
	}
	return w, nil
}
