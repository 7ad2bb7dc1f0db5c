// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/mapmem"
)

// Word returns the 8 bytes of the region at offset off as a number that this program and its peers
// change by atomic operations. The number is in host order, as are the operands of a peer's
// atomics. Its address must be a multiple of 8; memory of AllocMR begins at such an address. The
// error Is [ErrBounds] if the bytes are not all inside the region.
//
// Load and Store are always of a whole number, and with them the rules of Go's memory model
// (package sync/atomic) hold: who has seen a number that a peer placed last sees what the same peer
// placed before it. Add, CompareAndSwap and the other methods that read and write are atomic with
// respect to a peer's atomics only if AtomicCap of the device is [AtomicGlob], as on the user-space
// RNIC, whose atomics are those of sync/atomic. With [AtomicHCA] an atomic of the peer may come
// between the two, and one of them is lost: then this program, too, changes the number by an atomic
// request to its own device.
//
// The number is the memory itself: it must not be used after Close of a region that AllocMR made,
// nor after Rereg has replaced the memory. Word allocates nothing; a program can also keep what it
// returns.
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
