// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

import (
	"syscall"

	"github.com/goverbs/goverbs/internal/ibverbs"
	"github.com/goverbs/goverbs/internal/ibverbs/ksiw/ring/queue"
)

// Requests of the rings. A list is written to the ring and announced to the kernel with one system
// call, or with none if siw is still busy with earlier requests. Nothing is allocated.

// ringSends is the send queue of a QP.
type ringSends struct {
	ring   *queue.SQ
	gather func(to []byte, from []ibverbs.SGE) // see ibverbs.Context
}

// Send posts a list.
func (s *ringSends) Send(wrs []ibverbs.Send, sges []ibverbs.SGE, ext []ibverbs.Ext,
	held *ibverbs.Held) ibverbs.Posted {
	if held != nil {
		defer held.Store(0)
	}
	n := 0
	for n < len(wrs) {
		w := &wrs[n]
		own := sges[:w.Elements()]
		var x ibverbs.Ext
		if w.Ext != 0 {
			x = ext[w.Ext-1]
		}
		if !s.put(w, own, &x) {
			break
		}
		sges = sges[len(own):]
		n++
	}
	if err := s.ring.Tell(); err != nil {
		return ibverbs.Refused(n, ibverbs.Broken|ringErrno(err))
	}
	if n < len(wrs) {
		return ibverbs.Refused(n, syscall.ENOMEM)
	}
	return ibverbs.Posted(n)
}

// ringFlags converts the flags of a request to siw's.
func ringFlags(f SendFlags) (flags uint16) {
	if f&SendFence != 0 {
		flags |= queue.FlagFence
	}
	if f&SendSignaled != 0 {
		flags |= queue.FlagSignaled
	}
	if f&SendSolicited != 0 {
		flags |= queue.FlagSolicit
	}
	return flags
}

// put writes a request to the ring. It returns false if the ring has no room.
func (s *ringSends) put(w *ibverbs.Send, own []ibverbs.SGE, x *ibverbs.Ext) bool {
	entries := 1
	if opcode(w) == WRRDMAWriteWithImm {
		entries = 2
	}
	e := s.ring.Next(entries)
	if e == nil {
		return false
	}
	e.ID, e.RKey, e.RAddr = w.ID, w.RKey, w.RemoteAddr
	flags := ringFlags(SendFlags(w.Flags()))
	switch opcode(w) {
	case WRSend:
		s.putData(e, queue.OpSend, flags, w, own)
	case WRSendWithInv:
		e.RKey = w.Imm
		s.putData(e, queue.OpSendInv, flags, w, own)
	case WRRDMAWrite:
		s.putData(e, queue.OpWrite, flags, w, own)
	case WRRDMAWriteWithImm:
		// The Write is unsignaled, and the immediate is what wakes the peer. If the Write fails it
		// completes all the same; of two completions with the same ID, the second is ignored.
		s.putData(e, queue.OpWrite, flags&queue.FlagFence, w, own)
		e = s.ring.Next(1)
		e.ID = w.ID
		// The 32 bits are the first 4 of the 8 bytes, as on the user-space RNIC.
		s.putImmediate(e, uint64(w.Imm)<<32, flags&^queue.FlagFence)
	case WRImmData:
		s.putImmediate(e, x.A, flags)
	case WRRDMARead:
		s.putData(e, queue.OpRead, flags, w, own)
	case WRAtomicFetchAndAdd, WRMaskedAtomicFetchAndAdd:
		s.putAtomic(e, queue.OpFetchAdd, flags, own, queue.Operands{Data: x.A, Mask: x.P})
	case WRAtomicCmpAndSwp:
		s.putAtomic(e, queue.OpCmpSwap, flags, own,
			queue.Operands{Data: x.B, Mask: ^uint64(0), Compare: x.A, CompareMask: ^uint64(0)})
	case WRMaskedAtomicCmpAndSwp:
		s.putAtomic(e, queue.OpCmpSwap, flags, own,
			queue.Operands{Data: x.B, Mask: x.Q, Compare: x.A, CompareMask: x.P})
	}
	return true
}

// putData puts a request with elements or inline data.
func (s *ringSends) putData(e *queue.Send, op queue.Opcode, flags uint16, w *ibverbs.Send, own []ibverbs.SGE) {
	if !isInline(w) {
		setElements(&e.SGEs, own)
		s.ring.Put(op, flags, len(own))
		return
	}
	n := uint32(0)
	for _, g := range own {
		n += g.Length
	}
	s.gather(e.Inline()[:n], own)
	e.SGEs[0] = queue.SGE{Length: n}
	s.ring.Put(op, flags|queue.FlagInline, 1)
}

// putImmediate puts an 8-byte Immediate Data message.
func (s *ringSends) putImmediate(e *queue.Send, v uint64, flags uint16) {
	e.RKey, e.RAddr = 0, v
	s.ring.Put(queue.OpImmediate, flags, 0)
}

func (s *ringSends) putAtomic(e *queue.Send, op queue.Opcode, flags uint16, own []ibverbs.SGE,
	operands queue.Operands) {
	setElements(&e.SGEs, own)
	*e.Operands() = operands
	s.ring.Put(op, flags, len(own))
}

// setElements writes the elements of a request. Handles and the ledger ensure that there are not
// too many.
func setElements(to *[queue.MaxSGE]queue.SGE, own []ibverbs.SGE) {
	for i, g := range own {
		to[i] = queue.SGE{Addr: g.Addr, Length: g.Length, Key: g.LKey}
	}
}

// ringReceives is the receive queue of a QP or a shared receive queue.
type ringReceives struct {
	ring *queue.RQ // nil = none
}

// post posts a list. siw needs no doorbell for receives.
func (r *ringReceives) post(wrs []ibverbs.Recv, sges []ibverbs.SGE) ibverbs.Posted {
	for i := range wrs {
		var e *queue.Receive
		if r.ring != nil {
			e = r.ring.Next()
		}
		if e == nil {
			return ibverbs.Refused(i, syscall.ENOMEM)
		}
		own := sges[:wrs[i].NumSGE]
		sges = sges[len(own):]
		e.ID = wrs[i].ID
		setElements(&e.SGEs, own)
		r.ring.Put(len(own))
	}
	return ibverbs.Posted(len(wrs))
}
