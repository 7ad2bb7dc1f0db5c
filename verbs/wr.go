// SPDX-License-Identifier: BSD-3-Clause

package verbs

// SGE is a range of a registered region, in the region's addresses (struct ibv_sge). [MR.SGE]
// returns one and checks its bounds.
type SGE struct {
	Addr   uint64 // address of the first byte; an offset in a zero-based region
	Length uint32 // bytes
	LKey   uint32 // the region's local key
}

// SendWR is a send work request (ibv_post_send(3)). Posting retains neither the slice nor its
// elements nor the SGLs, so the caller can reuse them. The memory of the SGL belongs to the device
// from posting to completion; with SendInline, only during the post call.
type SendWR struct {
	ID     uint64    // returned in the completion
	Opcode WROpcode  // the zero value is WRRDMAWrite
	Flags  SendFlags // 0 = no completion on success, unless QPConfig.SigAll is set
	SGL    []SGE     // source; for Reads and atomics the sink (atomics: one element of 8 bytes)

	RemoteAddr uint64 // Write, Read, atomics, Atomic Write: target address in the peer's region
	RKey       uint32 // Write, Read, atomics, Atomic Write: the peer's key; Bind: the window's new key

	// InvalidateRKey is the key to invalidate: at the peer for WRSendWithInv, here for WRLocalInv.
	InvalidateRKey uint32

	Imm   uint32 // WRRDMAWriteWithImm, WRSendWithImm: host byte order
	Imm64 uint64 // WRImmData: a number; most significant byte first on the wire

	// Atomics (RFC 7306 section 5.1). FetchAdd adds Add; CmpSwap stores Swap if the target equals
	// Compare. The masks apply to the masked opcodes: a set bit in AddMask marks the most
	// significant bit of a field, whose carry is dropped; CompareMask and SwapMask select the bits
	// to compare and to store. All are numbers in host byte order, as is the original value placed
	// in the sink. WRAtomicWrite stores Swap, whose 8 bytes are sent as they lie in this host's
	// memory.
	Add, AddMask         uint64
	Compare, CompareMask uint64
	Swap, SwapMask       uint64

	Bind *MWBind // WRBindMW
	UD   *UDDest // UD: the destination

	room uint64 // 1 + the length of the Remote of the request, 0 = unknown
}

// MWBind names a window and the memory to bind it to (struct ibv_mw_bind_info). WRBindMW takes a
// type 2 window, [QP.BindMW] a type 1 window. A WRBindMW with zero Length is refused; use
// WRLocalInv to invalidate a window.
type MWBind struct {
	MW     *MW
	MR     *MR         // needs AccessMWBind, and AccessLocalWrite if Access allows the peer to write
	Addr   uint64      // first byte, in the region's addresses
	Length uint64      // bytes
	Access AccessFlags // AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic, AccessZeroBased
}

// UDDest is the destination of a datagram (wr.ud of struct ibv_send_wr).
type UDDest struct {
	AH         *AH    // the path
	RemoteQPN  uint32 // remote_qpn: destination QP number, 24 bits
	RemoteQKey uint32 // remote_qkey: Q_Key of the destination QP
}

// RecvWR is a receive work request (ibv_post_recv(3)). An empty SGL receives messages without data.
// On a UD QP the first 40 bytes of the memory are reserved for the Global Routing Header (see
// [WCGRH]); WC.ByteLen includes them.
type RecvWR struct {
	ID  uint64 // returned in the completion
	SGL []SGE  // needs AccessLocalWrite
}

// WC is a completion (struct ibv_wc, ibv_poll_cq(3)). If Status is not [WCSuccess], only ID,
// Status, VendorErr and QPNum are valid. All numbers are in host byte order.
type WC struct {
	ID     uint64 // of the request
	Status WCStatus
	Opcode WCOpcode
	Flags  WCFlags

	// ByteLen is the number of bytes received or read: for WCRecvRDMAWithImm the length of the
	// peer's Write, for WCRecvImmData 8.
	ByteLen uint32

	// Imm and Imm64 hold the immediate if Flags has WCWithImm. Imm64 holds all 8 bytes of RFC 7306
	// Immediate Data, most significant byte first. Imm holds the first four, which other
	// implementations use for 32-bit immediates. On fabrics with 32-bit immediates Imm64 is
	// Imm<<32.
	Imm   uint32
	Imm64 uint64

	InvalidatedRKey uint32 // the key that the peer invalidated, if Flags has WCWithInv
	VendorErr       uint32 // of a failed request; the meaning depends on the driver
	QPNum           uint32 // number of the request's QP
	SrcQP           uint32 // UD: QP number of the sender

	PKeyIndex    uint16 // UD: the index of the partition key, for QP 1 only
	SLID         uint16 // UD on InfiniBand: the sender's LID
	SL           uint8  // UD: service level
	DLIDPathBits uint8  // UD on InfiniBand: low bits of the destination LID

	posted uint64 // ID XOR the wr_id under which a Dispatcher posted the request; 0 without a Dispatcher
}

// Err returns nil if the request succeeded, and otherwise the status, which is an error. [QP.Cause]
// explains it.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	return wc.Status
}

// IsRecv reports whether the completion belongs to a receive (valid on success only).
func (wc *WC) IsRecv() bool { return wc.Opcode&WCRecv != 0 }
