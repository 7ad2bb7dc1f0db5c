// SPDX-License-Identifier: BSD-3-Clause

package verbs

// SGE is a range of a registered region, in the addresses of the region. [MR.SGE] makes one and checks its bounds.
type SGE struct {
	Addr   uint64 // address of the first byte; an offset in a zero-based region
	Length uint32 // bytes
	LKey   uint32 // the region's local key
}

// SendWR is a send work request (ibv_post_send(3)). Post functions keep neither the slice nor its elements nor the SGLs, so the
// caller can reuse them. The memory of the SGL belongs to the device from the post to the completion; with SendInline only
// during the post.
type SendWR struct {
	ID     uint64    // returned in the completion
	Opcode WROpcode  //
	Flags  SendFlags //
	SGL    []SGE     // source; for Read and atomics the sink (atomics: one element of 8 bytes)

	RemoteAddr uint64 // Write, Read, atomics, Atomic Write: target address in the peer's region
	RKey       uint32 // Write, Read, atomics, Atomic Write: the peer's key; Bind: the window's new key

	// InvalidateRKey is the key that WRSendWithInv invalidates at the peer and WRLocalInv here.
	InvalidateRKey uint32

	Imm   uint32 // WRRDMAWriteWithImm, WRSendWithImm: host order
	Imm64 uint64 // WRImmData: a number; most significant byte first on the wire

	// Atomics (RFC 7306 section 5.1). FetchAdd adds Add; CmpSwap stores Swap if the target equals Compare. The masks are for
	// the masked opcodes: a set bit in AddMask is the most significant bit of a field, whose carry is dropped; CompareMask
	// and SwapMask select the bits that are compared and stored. All are numbers in host order, and so is the original
	// value that arrives in the sink. WRAtomicWrite stores Swap, with its 8 bytes as they are in this host's memory.
	Add, AddMask         uint64
	Compare, CompareMask uint64
	Swap, SwapMask       uint64

	Bind *MWBind // WRBindMW
	UD   *UDDest // UD: the destination
}

// MWBind has the type 2 window of a WRBindMW and the memory to which it is bound. A zero Length is refused; use WRLocalInv to
// invalidate a window.
type MWBind struct {
	MW     *MW
	MR     *MR         // needs AccessMWBind, and AccessLocalWrite if Access allows the peer to write
	Addr   uint64      // first byte, in the region's addresses
	Length uint64      // bytes
	Access AccessFlags // AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic, AccessZeroBased
}

// UDDest is the destination of a datagram.
type UDDest struct {
	AH         *AH    // the path
	RemoteQPN  uint32 // remote_qpn
	RemoteQKey uint32 // remote_qkey
}

// RecvWR is a receive work request (ibv_post_recv(3)). An empty SGL is for messages without data. On a UD QP the first 40 bytes of
// the memory are for the Global Routing Header, see [WCGRH]; WC.ByteLen includes them.
type RecvWR struct {
	ID  uint64
	SGL []SGE // needs AccessLocalWrite
}

// WC is a completion. On error only ID, Status and QPNum are valid.
type WC struct {
	ID     uint64
	Status WCStatus
	Opcode WCOpcode
	Flags  WCFlags

	// ByteLen is the number of bytes received or read. With WCRecvRDMAWithImm it is the length of the peer's Write, with
	// WCRecvImmData it is 8.
	ByteLen uint32

	// Imm and Imm64 are the immediate if Flags has WCWithImm. Imm64 has all 8 bytes of RFC 7306 Immediate Data, most
	// significant byte first. Imm has the first four of them, which are the 32-bit immediate of other implementations. On
	// fabrics with 32-bit immediates Imm64 is Imm<<32.
	Imm   uint32
	Imm64 uint64

	InvalidatedRKey uint32 // the key that the peer invalidated, if Flags has WCWithInv
	VendorErr       uint32
	QPNum           uint32
	SrcQP           uint32 // UD: the sender

	PKeyIndex    uint16 // UD
	SLID         uint16 // UD on InfiniBand: the sender's LID
	SL           uint8  // UD: service level
	DLIDPathBits uint8  // UD
}

// Err returns nil if the request succeeded, and otherwise the status, which is an error. [QP.Cause] tells more.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	return wc.Status
}

// IsRecv reports whether the completion is of a receive (valid on success only).
func (wc *WC) IsRecv() bool { return wc.Opcode&WCRecv != 0 }
