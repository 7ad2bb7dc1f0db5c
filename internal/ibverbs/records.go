// SPDX-License-Identifier: BSD-3-Clause

package ibverbs

// Send is a send request: the fields that all requests have, and the index of its Ext.
type Send struct { // struct gv_wr
	ID, RemoteAddr uint64
	RKey           uint32
	Imm            uint32 // in host order; the key to invalidate, if the opcode invalidates one
	Op             uint32 // made by MakeOp
	Ext            uint32 // 1 + index of the request's Ext, 0 = none
}

// Positions of the flags and the number of elements in Send.Op. The opcode is in the lowest 8 bits.
const (
	FlagsShift = 8
	SGEsShift  = 16
)

// MakeOp returns the value of Send.Op.
func MakeOp(opcode, flags uint8, elements int) uint32 {
	return uint32(opcode) | uint32(flags)<<FlagsShift | uint32(elements)<<SGEsShift
}

// Opcode returns the opcode, an ibv_wr_opcode.
func (w *Send) Opcode() uint8 { return uint8(w.Op) }

// Flags returns the flags, ibv_send_flags.
func (w *Send) Flags() uint8 { return uint8(w.Op >> FlagsShift) }

// Elements returns the number of scatter/gather elements. They follow those of the previous
// request.
func (w *Send) Elements() int { return int(w.Op >> SGEsShift) }

// Ext holds the fields that few requests need:
//
//	atomics        A compare or add, B swap; masked ones also P and Q, the masks of A and B
//	Atomic Write   A the value to write
//	immediate data of 8 bytes: A
//	datagram       P address handle, C QP number and D Q_Key of the receiver
//	bind           P window, Q region, A address, B length, C key, D access rights
type Ext struct { // struct gv_ext
	P, Q, A, B uint64
	C, D       uint32
}

// Recv is a receive request. Its elements follow those of the previous request.
type Recv struct { // struct gv_recv
	ID     uint64
	NumSGE uint32
	_      uint32
}

// SGE is a piece of registered memory, or of memory whose bytes are sent inline.
type SGE struct { // struct ibv_sge
	Addr         uint64
	Length, LKey uint32
}

// WC is a completion.
type WC struct { // struct gv_wc
	ID              uint64
	Status          uint8 // an ibv_wc_status
	Opcode          uint8 // an ibv_wc_opcode, as numbered in package verbs
	Flags           uint8
	ByteLen         uint32
	Imm             uint32
	Imm64           uint64
	InvalidatedRKey uint32
	VendorErr       uint32
	QPNum, SrcQP    uint32
	PKeyIndex, SLID uint16
	SL              uint8
	DLIDPathBits    uint8
	_               uint64 // used by package verbs
}

// Device is an entry of the device list.
type Device struct {
	Name                string
	GUID                uint64 // in host order
	NodeType, Transport int
}

// DeviceAttr holds the attributes of a device, struct ibv_device_attr.
type DeviceAttr struct { // struct gv_device_attr
	FwVer                                                 [65]byte // NUL-terminated
	NodeGUID, SysImageGUID                                uint64   // in host order
	MaxMRSize, PageSizeCap                                uint64
	VendorID, VendorPartID, HWVer, CapFlags               uint32
	MaxQP, MaxQPWR, MaxSGE, MaxSGERd                      int32
	MaxCQ, MaxCQE, MaxMR, MaxPD                           int32
	MaxQPRdAtom, MaxResRdAtom, MaxQPInitRdAtom, AtomicCap int32
	MaxMW, MaxAH, MaxSRQ, MaxSRQWR, MaxSRQSGE             int32
	MaxPKeys, PhysPortCnt, NumCompVectors                 int32
	MaxEERdAtom, MaxEEInitRdAtom, MaxEE, MaxRDD           int32
	MaxRawIPv6QP, MaxRawEthyQP                            int32
	MaxMcastGrp, MaxMcastQPAttach, MaxTotalMcastQPAttach  int32
	MaxFMR, MaxMapPerFMR                                  int32
	LocalCAAckDelay                                       uint8
}

// DeviceAttrEx holds the extended attributes, struct ibv_device_attr_ex.
type DeviceAttrEx struct { // struct gv_device_attr_ex
	ODPGeneral, CompletionTimestampMask, HCACoreClock uint64
	CapFlagsEx, MaxDMSize, RSSFieldsMask              uint64
	ODPRC, ODPUC, ODPUD, ODPXRC                       uint32
	RawPacketCaps, MaxWQTypeRQ, TSOMax, TSOQPTs       uint32
	RSSQPTs, RSSTables, RSSTableSize                  uint32
	PacingMin, PacingMax, PacingQPTs                  uint32
	TMHdr, TMTags, TMFlags, TMOps, TMSGE              uint32
	ModCount, ModPeriod                               uint16
	PCIFetchAdd, PCISwap, PCICompareSwap              uint16
	RSSFunction                                       uint8
}

// PortAttr holds the attributes of a port, struct ibv_port_attr.
type PortAttr struct { // struct gv_port_attr
	State, MaxMTU, ActiveMTU, MaxMsgSz                  uint32
	PortCapFlags, BadPKeyCntr, QKeyViolCntr             uint32
	GIDTblLen                                           int32
	PKeyTblLen, LID, SMLID, PortCapFlags2               uint16
	LMC, ActiveWidth, ActiveSpeed, PhysState, LinkLayer uint8
	MaxVLNum, SMSL, SubnetTimeout, InitTypeReply, Flags uint8
}

// GID is an entry of a port's GID table.
type GID struct { // struct gv_gid
	Raw    [16]byte
	Type   int32
	NetDev [64]byte // NUL-terminated; empty = none
}

// Keys holds the keys of a region.
type Keys struct { // struct gv_keys
	LKey, RKey uint32
}

// SRQAttr holds the attributes of a shared receive queue.
type SRQAttr struct { // struct gv_srq_attr
	MaxWR, MaxSGE, Limit uint32
}

// AHAttr is an address vector, struct ibv_ah_attr.
type AHAttr struct { // struct gv_ah_attr
	DGID                              [16]byte
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
	DLID                              uint16
	SL, SrcPathBits, StaticRate       uint8
	IsGlobal                          bool
	PortNum                           uint8
}

// QPCap holds the queue sizes of a QP.
type QPCap struct { // struct gv_qp_cap
	MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInlineData uint32
}

// QPAttr holds the attributes of a QP, struct ibv_qp_attr.
type QPAttr struct { // struct gv_qp_attr
	State, CurState, PathMTU, QKey                    uint32
	RQPSN, SQPSN, DestQPNum, AccessFlags              uint32
	Cap                                               QPCap
	AH                                                AHAttr
	PKeyIndex                                         uint16
	SQDAsyncNotify, MaxRdAtomic, MaxDestRdAtomic      uint8
	MinRNRTimer, PortNum, Timeout, RetryCnt, RNRRetry uint8
}

// Event is an asynchronous event.
type Event struct { // struct gv_async
	Type   int32 // an ibv_event_type
	Port   int32
	Cookie uint64 // identifies the object, 0 = none
}
