// SPDX-License-Identifier: BSD-3-Clause

package verbs

// SGE is a range of a registered region, in the addresses of the region (struct ibv_sge). [MR.SGE]
// makes one and checks its bounds.
type SGE struct {
	Addr   uint64 // address of the first byte; an offset in a zero-based region
	Length uint32 // bytes
	LKey   uint32 // the region's local key
}

// SendWR is a send work request (ibv_post_send(3)). Post functions keep neither the slice nor its
// elements nor the SGLs, so the caller can reuse them. The memory of the SGL belongs to the device
// from the post to the completion; with SendInline only during the post.
type SendWR struct {
	ID     uint64    // returned in the completion
	Opcode WROpcode  // the zero value is WRRDMAWrite
	Flags  SendFlags // 0 = no completion on success, unless QPConfig.SigAll asks for it
	SGL    []SGE     // source; for Read and atomics the sink (atomics: one element of 8 bytes)

	RemoteAddr uint64 // Write, Read, atomics, Atomic Write: target address in the peer's region
	RKey       uint32 // Write, Read, atomics, Atomic Write: the peer's key; Bind: the window's new key

	// InvalidateRKey is the key that WRSendWithInv invalidates at the peer and WRLocalInv here.
	InvalidateRKey uint32

	Imm   uint32 // WRRDMAWriteWithImm, WRSendWithImm: host order
	Imm64 uint64 // WRImmData: a number; most significant byte first on the wire

	// Atomics (RFC 7306 section 5.1). FetchAdd adds Add; CmpSwap stores Swap if the target equals
	// Compare. The masks are for the masked opcodes: a set bit in AddMask is the most significant
	// bit of a field, whose carry is dropped; CompareMask and SwapMask select the bits that are
	// compared and stored. All are numbers in host order, and so is the original value that arrives
	// in the sink. WRAtomicWrite stores Swap, with its 8 bytes as they are in this host's memory.
	Add, AddMask         uint64
	Compare, CompareMask uint64
	Swap, SwapMask       uint64

	Bind *MWBind // WRBindMW
	UD   *UDDest // UD: the destination

	room uint64 // 1 + the length of the Remote from which it was made, 0 = not known
}

// MWBind has a window and the memory to which it is bound (struct ibv_mw_bind_info): for a WRBindMW
// a window of type 2, for [QP.BindMW] one of type 1. A WRBindMW with a zero Length is refused; use
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
	RemoteQPN  uint32 // remote_qpn: the number of its QP, 24 bits
	RemoteQKey uint32 // remote_qkey: the Q_Key of its QP
}

// RecvWR is a receive work request (ibv_post_recv(3)). An empty SGL is for messages without data.
// On a UD QP the first 40 bytes of the memory are for the Global Routing Header, see [WCGRH];
// WC.ByteLen includes them.
type RecvWR struct {
	ID  uint64 // returned in the completion
	SGL []SGE  // needs AccessLocalWrite
}

// WC is a completion (struct ibv_wc, ibv_poll_cq(3)). If Status is not [WCSuccess], only ID,
// Status, VendorErr and QPNum are valid. All numbers are in host order.
type WC struct {
	ID     uint64 // of the request
	Status WCStatus
	Opcode WCOpcode
	Flags  WCFlags

	// ByteLen is the number of bytes received or read. With WCRecvRDMAWithImm it is the length of
	// the peer's Write, with WCRecvImmData it is 8.
	ByteLen uint32

	// Imm and Imm64 are the immediate if Flags has WCWithImm. Imm64 has all 8 bytes of RFC 7306
	// Immediate Data, most significant byte first. Imm has the first four of them, which are the
	// 32-bit immediate of other implementations. On fabrics with 32-bit immediates Imm64 is
	// Imm<<32.
	Imm   uint32
	Imm64 uint64

	InvalidatedRKey uint32 // the key that the peer invalidated, if Flags has WCWithInv
	VendorErr       uint32 // of a request that has failed: what it means depends on the driver
	QPNum           uint32 // of the QP of the request
	SrcQP           uint32 // UD: the number of the sender's QP

	PKeyIndex    uint16 // UD: the index of the partition key, for QP 1 only
	SLID         uint16 // UD on InfiniBand: the sender's LID
	SL           uint8  // UD: service level
	DLIDPathBits uint8  // UD on InfiniBand: the low bits of the LID to which the message was sent

	posted uint64 // ID, XOR the one with which a Dispatcher posted the request: 0 without a Dispatcher
}

// Err returns nil if the request succeeded, and otherwise the status, which is an error. [QP.Cause]
// tells more.
func (wc *WC) Err() error {
	if wc.Status == WCSuccess {
		return nil
	}
	return wc.Status
}

// IsRecv reports whether the completion is of a receive (valid on success only).
func (wc *WC) IsRecv() bool { return wc.Opcode&WCRecv != 0 }
