// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"encoding/binary"
	"sync/atomic"
)

// MaxSGE is the largest number of elements in an entry. MaxInline is the largest number of bytes of
// inline data, which replace all elements but the first.
const (
	MaxSGE    = 6
	MaxInline = (MaxSGE - 1) * 16
)

// Opcode is enum siw_opcode.
type Opcode uint8

// The opcodes of requests and completions.
const (
	OpWrite        Opcode = 0
	OpRead         Opcode = 1
	OpReadLocalInv Opcode = 2
	OpSend         Opcode = 3
	OpImmediate    Opcode = 4 // SIW_OP_SEND_WITH_IMM; Immediate Data, if the kernel has RFC 7306
	OpSendInv      Opcode = 5
	OpFetchAdd     Opcode = 6
	OpCmpSwap      Opcode = 7
	OpReceive      Opcode = 8
)

// Flags of requests and completions, enum siw_wqe_flags.
const (
	valid        = 1 << 0
	FlagInline   = 1 << 1
	FlagSignaled = 1 << 2
	FlagSolicit  = 1 << 3
	FlagFence    = 1 << 4 // wait for the responses to earlier Reads and atomics
	FlagInv      = 1 << 5 // in a completion: the peer invalidated a key

	// Flags in the completion of a receive, if the kernel has RFC 7306. FlagImm: the message is
	// Immediate Data. FlagWrote: the preceding message was a Write, and Bytes is the length of that
	// Write instead of 8. Neither libsiw nor a kernel without RFC 7306 uses these bits in
	// completions.
	FlagImm   = 1 << 7
	FlagWrote = 1 << 1
)

// Status is enum siw_wc_status.
type Status uint16

// The results of requests.
const (
	StatusSuccess Status = iota
	StatusLocLen
	StatusLocProt
	StatusLocQPOp
	StatusFlushed
	StatusBadResp
	StatusLocAccess
	StatusRemAccess
	StatusRemInvReq
	StatusGeneral
)

// SGE is an element of a request: struct siw_sge, laid out as struct ibv_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	Key    uint32
}

// Send is an entry of a send queue, struct siw_sqe. Inline data or operands may replace all
// elements but the first: see Inline and Operands.
type Send struct {
	ID    uint64
	word  atomic.Uint32 // requestWord
	RKey  uint32        // of the target; OpSendInv: the key that the peer invalidates
	RAddr uint64        // of the target; OpImmediate: the 8 bytes, as a number
	SGEs  [MaxSGE]SGE
}

// Receive is an entry of a receive queue, struct siw_rqe.
type Receive struct {
	ID   uint64
	word atomic.Uint32 // requestWord
	_    uint32
	SGEs [MaxSGE]SGE
}

// Operands holds the operands of an atomic. FetchAdd adds Data; each bit set in Mask is the most
// significant bit of a field. CmpSwap compares the bits of Compare selected by CompareMask and
// stores the bits of Data selected by Mask.
type Operands struct {
	Data, Mask, Compare, CompareMask uint64
}

// completion is an entry of a CQ, struct siw_cqe.
type completion struct {
	id    uint64
	word  atomic.Uint32 // flags 8 bits, opcode 8, status 16
	bytes uint32
	imm   uint64 // or, in the first 4 bytes, the invalidated key
	qp    uint64
}

// control is the notification state of a CQ, struct siw_cq_ctrl. It follows the last entry.
type control struct {
	flags atomic.Uint32
	_     uint32
}

// Notification flags, enum siw_notify_flags.
const (
	notifySolicited = 1 << 0
	notifyNext      = 1 << 1
)

// Sizes of the mapped structures, in bytes.
const (
	sendSize       = 24 + MaxSGE*16
	receiveSize    = 16 + MaxSGE*16
	completionSize = 32
	controlSize    = 8
)

// SQSize, RQSize and CQSize return the size in bytes of a queue with this many entries.
func SQSize(entries uint32) int { return int(entries) * sendSize }

// RQSize: see SQSize.
func RQSize(entries uint32) int { return int(entries) * receiveSize }

// CQSize: see SQSize.
func CQSize(entries uint32) int { return int(entries)*completionSize + controlSize }

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// requestWord returns the word of a request: in memory order, 16 bits of flags, 8 bits for the
// number of elements, 8 bits of opcode.
func requestWord(flags uint16, elements int, op Opcode) uint32 {
	if bigEndian {
		return uint32(flags)<<16 | uint32(elements)<<8 | uint32(op)
	}
	return uint32(flags) | uint32(elements)<<16 | uint32(op)<<24
}

// isKernels reports whether the kernel owns a request. When the kernel returns an entry, it clears
// only the flags.
func isKernels(word *atomic.Uint32) bool {
	if bigEndian {
		return word.Load()>>16&valid != 0
	}
	return word.Load()&valid != 0
}

// completionParts splits the word of a completion.
func completionParts(word uint32) (flags uint8, op Opcode, status Status) {
	if bigEndian {
		return uint8(word >> 24), Opcode(word >> 16), Status(word)
	}
	return uint8(word), Opcode(word >> 8), Status(word >> 16)
}

// invalidated returns the key stored in the immediate field.
func invalidated(imm uint64) uint32 {
	if bigEndian {
		return uint32(imm >> 32)
	}
	return uint32(imm)
}
