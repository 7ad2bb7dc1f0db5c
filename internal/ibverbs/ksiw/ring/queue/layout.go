// SPDX-License-Identifier: BSD-3-Clause

package queue

import (
	"encoding/binary"
	"sync/atomic"
)

// MaxSGE is the number of elements for which an entry has room. MaxInline is the number of bytes of
// data that it can have in place of all elements but the first.
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
	OpImmediate    Opcode = 4 // SIW_OP_SEND_WITH_IMM; Immediate Data, where the kernel has RFC 7306
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
	FlagFence    = 1 << 4 // wait until earlier Reads and atomics are answered
	FlagInv      = 1 << 5 // in a completion: the peer has invalidated a key

	// Flags in the completion of a receive, where the kernel has RFC 7306. FlagImm: the message is
	// Immediate Data. FlagWrote: the message before it was a Write, and Bytes is the length of that
	// Write instead of 8. libsiw and a kernel without RFC 7306 use neither in completions.
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

// Send is an entry of a send queue, struct siw_sqe. In place of all elements but the first it can
// have other things: see Inline and Operands.
type Send struct {
	ID    uint64
	word  atomic.Uint32 // requestWord
	RKey  uint32        // of the target; OpSendInv: that the peer invalidates
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

// Operands are those of an atomic. FetchAdd adds Data; the bits of Mask are the most significant
// ones of fields. CmpSwap compares the bits of Compare in CompareMask and stores those of Data in
// Mask.
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

// control says what a CQ is armed for, struct siw_cq_ctrl. It follows the last entry.
type control struct {
	flags atomic.Uint32
	_     uint32
}

// What a CQ is armed for, enum siw_notify_flags.
const (
	notifySolicited = 1 << 0
	notifyNext      = 1 << 1
)

// Sizes of what is mapped, in bytes.
const (
	sendSize       = 24 + MaxSGE*16
	receiveSize    = 16 + MaxSGE*16
	completionSize = 32
	controlSize    = 8
)

// SQSize, RQSize and CQSize return how many bytes a queue with this number of entries takes in
// memory.
func SQSize(entries uint32) int { return int(entries) * sendSize }

// RQSize: see SQSize.
func RQSize(entries uint32) int { return int(entries) * receiveSize }

// CQSize: see SQSize.
func CQSize(entries uint32) int { return int(entries)*completionSize + controlSize }

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// requestWord is flags 16 bits, number of elements 8, opcode 8, in the order of memory.
func requestWord(flags uint16, elements int, op Opcode) uint32 {
	if bigEndian {
		return uint32(flags)<<16 | uint32(elements)<<8 | uint32(op)
	}
	return uint32(flags) | uint32(elements)<<16 | uint32(op)<<24
}

// isKernels reports whether a request is the kernel's. When it gives the entry back it clears the
// flags only.
func isKernels(word *atomic.Uint32) bool {
	if bigEndian {
		return word.Load()>>16&valid != 0
	}
	return word.Load()&valid != 0
}

// completionParts takes the word of a completion apart.
func completionParts(word uint32) (flags uint8, op Opcode, status Status) {
	if bigEndian {
		return uint8(word >> 24), Opcode(word >> 16), Status(word)
	}
	return uint8(word), Opcode(word >> 8), Status(word >> 16)
}

// invalidated returns the key in the place of an immediate.
func invalidated(imm uint64) uint32 {
	if bigEndian {
		return uint32(imm >> 32)
	}
	return uint32(imm)
}
