// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The functions in this file return the common requests; package ext has those of RFC 7306. They
// post nothing: pass the result to QP.PostSend, Dispatcher.PostSend or Endpoint.Do of package cm.
// Arguments have the same order everywhere: the peer's memory, then the operands, then local
// memory. Each request is signalled, so it generates a completion on success too; the caller may
// change its flags and ID. Posting a request that exceeds its [Remote] fails with an error that Is
// [ErrBounds].
//
// A SendWR literal should set Opcode explicitly, because the zero Opcode is WRRDMAWrite.

// Send returns a request that sends the elements of from as one message (WRSend). The peer must
// have posted a receive that is large enough.
func Send(from ...SGE) SendWR { return SendWR{Opcode: WRSend, Flags: SendSignaled, SGL: from} }

// SendImm returns a [Send] with a 32-bit immediate (WRSendWithImm).
func SendImm(imm uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRSendWithImm, Flags: SendSignaled, SGL: from, Imm: imm}
}

// SendInv returns a [Send] that also invalidates one of the peer's keys (WRSendWithInv).
func SendInv(rkey uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRSendWithInv, Flags: SendSignaled, SGL: from, InvalidateRKey: rkey}
}

// Write returns a request that writes the elements of from to the peer's memory (WRRDMAWrite). The
// peer's program is not notified. On iWARP, success means that from may be reused, not that the
// peer has the data; on InfiniBand it means both.
func Write(to Remote, from ...SGE) SendWR {
	return SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, SGL: from, RemoteAddr: to.Addr, RKey: to.RKey,
		room: to.Length + 1}
}

// WriteImm returns a [Write] with a 32-bit immediate (WRRDMAWriteWithImm). It consumes a receive of
// the peer, whose completion carries the immediate and the number of bytes written.
func WriteImm(to Remote, imm uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRRDMAWriteWithImm, Flags: SendSignaled, SGL: from, RemoteAddr: to.Addr, RKey: to.RKey,
		room: to.Length + 1, Imm: imm}
}

// Read returns a request that reads as many bytes from the peer's memory as the elements of into
// hold (WRRDMARead). They need AccessLocalWrite. The peer's program is not notified.
func Read(from Remote, into ...SGE) SendWR {
	return SendWR{Opcode: WRRDMARead, Flags: SendSignaled, SGL: into, RemoteAddr: from.Addr, RKey: from.RKey,
		room: from.Length + 1}
}

// FetchAdd returns a request that adds add to the 64-bit integer at the start of the peer's memory
// (WRAtomicFetchAndAdd). Its address must be a multiple of 8. The original value is placed in into,
// one element of 8 bytes with AccessLocalWrite, in host byte order.
func FetchAdd(at Remote, add uint64, into ...SGE) SendWR {
	return SendWR{Opcode: WRAtomicFetchAndAdd, Flags: SendSignaled, SGL: into, RemoteAddr: at.Addr, RKey: at.RKey,
		room: at.Length + 1, Add: add}
}

// AtomicWrite returns a request that atomically writes the 8 bytes of value to the start of the
// peer's memory, after all earlier Writes (WRAtomicWrite). A reader of the word sees either the
// whole old value or the whole new one; once it sees the new value, it also sees what was written
// before. The address must be a multiple of 8, and the memory needs AccessRemoteWrite. No value is
// returned. The bytes are sent in this host's byte order, so a peer of the opposite byte order sees
// them reversed. The QP must have been created with OpAtomicWrite (QPConfig.SendOps).
func AtomicWrite(at Remote, value uint64) SendWR {
	return SendWR{Opcode: WRAtomicWrite, Flags: SendSignaled, RemoteAddr: at.Addr, RKey: at.RKey, room: at.Length + 1,
		Swap: value}
}

// CmpSwap returns a request that sets the 64-bit integer at the start of the peer's memory to swap
// if it equals compare (WRAtomicCmpAndSwp). The original value is placed in into, as in [FetchAdd];
// the swap took place if it equals compare.
func CmpSwap(at Remote, compare, swap uint64, into ...SGE) SendWR {
	return SendWR{Opcode: WRAtomicCmpAndSwp, Flags: SendSignaled, SGL: into, RemoteAddr: at.Addr, RKey: at.RKey,
		room: at.Length + 1, Compare: compare, Swap: swap}
}
