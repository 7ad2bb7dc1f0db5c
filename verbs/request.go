// SPDX-License-Identifier: BSD-3-Clause

package verbs

// The functions of this file return the ordinary requests, and those of package ext the ones of RFC
// 7306. They post nothing: pass the result to QP.PostSend, Dispatcher.PostSend or Endpoint.Do of
// package cm. All have one rule. The peer's memory comes first, then the operands, then the memory
// of this side. Each request is signalled, so that it completes visibly also on success; the caller
// may change flags and ID. A request for more bytes than the [Remote] has is refused when it is
// posted: the error Is [ErrBounds].
//
// A SendWR that is written out by hand should name its Opcode, because the zero Opcode is
// WRRDMAWrite.

// Send returns the request that sends the memory from as a message (WRSend). The peer needs a
// receive for it that has room.
func Send(from ...SGE) SendWR { return SendWR{Opcode: WRSend, Flags: SendSignaled, SGL: from} }

// SendImm returns [Send] with a 32-bit immediate (WRSendWithImm).
func SendImm(imm uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRSendWithImm, Flags: SendSignaled, SGL: from, Imm: imm}
}

// SendInv returns [Send] that also invalidates a key of the peer (WRSendWithInv).
func SendInv(rkey uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRSendWithInv, Flags: SendSignaled, SGL: from, InvalidateRKey: rkey}
}

// Write returns the request that writes the memory from into the peer's memory (WRRDMAWrite). The
// peer's program is not told. On iWARP success says that from may be reused, not that the peer has
// the data; on InfiniBand it says both.
func Write(to Remote, from ...SGE) SendWR {
	return SendWR{Opcode: WRRDMAWrite, Flags: SendSignaled, SGL: from, RemoteAddr: to.Addr, RKey: to.RKey,
		room: to.Length + 1}
}

// WriteImm returns [Write] with a 32-bit immediate (WRRDMAWriteWithImm): it takes a receive of the
// peer, whose completion has the immediate and the number of bytes written.
func WriteImm(to Remote, imm uint32, from ...SGE) SendWR {
	return SendWR{Opcode: WRRDMAWriteWithImm, Flags: SendSignaled, SGL: from, RemoteAddr: to.Addr, RKey: to.RKey,
		room: to.Length + 1, Imm: imm}
}

// Read returns the request that reads from the peer's memory as many bytes as into has
// (WRRDMARead). into needs AccessLocalWrite. The peer's program is not told.
func Read(from Remote, into ...SGE) SendWR {
	return SendWR{Opcode: WRRDMARead, Flags: SendSignaled, SGL: into, RemoteAddr: from.Addr, RKey: from.RKey,
		room: from.Length + 1}
}

// FetchAdd returns the request that adds add to the 64-bit integer at the beginning of the peer's
// memory (WRAtomicFetchAndAdd). Its address must be a multiple of 8. The original value arrives in
// into, one element of 8 bytes, in host byte order; into needs AccessLocalWrite.
func FetchAdd(at Remote, add uint64, into ...SGE) SendWR {
	return SendWR{Opcode: WRAtomicFetchAndAdd, Flags: SendSignaled, SGL: into, RemoteAddr: at.Addr, RKey: at.RKey,
		room: at.Length + 1, Add: add}
}

// AtomicWrite returns the request that writes the 8 bytes of value to the beginning of the peer's
// memory at once, after all earlier Writes (WRAtomicWrite): whoever reads the word there finds
// either all of the old value or all of the new one, and with the new one what was written before.
// The address must be a multiple of 8, and the memory needs AccessRemoteWrite. Nothing is returned
// from there. The bytes go as they are in this host's memory, so a peer of the other byte order
// finds them reversed. The QP must have been created for it (QPConfig.SendOps).
func AtomicWrite(at Remote, value uint64) SendWR {
	return SendWR{Opcode: WRAtomicWrite, Flags: SendSignaled, RemoteAddr: at.Addr, RKey: at.RKey, room: at.Length + 1,
		Swap: value}
}

// CmpSwap returns the request that stores swap in the 64-bit integer at the beginning of the peer's
// memory if it equals compare (WRAtomicCmpAndSwp). The original value arrives in into, as with
// [FetchAdd]; the swap was done if it equals compare.
func CmpSwap(at Remote, compare, swap uint64, into ...SGE) SendWR {
	return SendWR{Opcode: WRAtomicCmpAndSwp, Flags: SendSignaled, SGL: into, RemoteAddr: at.Addr, RKey: at.RKey,
		room: at.Length + 1, Compare: compare, Swap: swap}
}
