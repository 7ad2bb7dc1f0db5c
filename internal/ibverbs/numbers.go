// SPDX-License-Identifier: BSD-3-Clause

package ibverbs

// Constants of the C headers that the code below package verbs needs. A test in package verbs
// compares them with the public ones.

// QP states, ibv_qp_state.
const (
	StateReset = 0
	StateInit  = 1
	StateRTR   = 2
	StateRTS   = 3
	StateErr   = 6
)

// Fields of QPAttr, ibv_qp_attr_mask.
const (
	AttrState       = 1 << 0
	AttrAccessFlags = 1 << 3
	AttrDestQPN     = 1 << 20
)

// Opcodes of send requests, ibv_wr_opcode.
const (
	OpWrite    = 0
	OpWriteImm = 1
	OpSend     = 2
	OpSendImm  = 3
	OpRead     = 4
)

// Flags of send requests, ibv_send_flags.
const (
	FlagSignaled  = 1 << 1
	FlagSolicited = 1 << 2
	FlagInline    = 1 << 3
)

// Completion statuses, ibv_wc_status.
const (
	Success      = 0
	LocLenErr    = 1
	LocQPOpErr   = 2
	LocProtErr   = 4
	Flushed      = 5
	RemInvReqErr = 9
	RemAccessErr = 10
)

// Completion opcodes, ibv_wc_opcode.
const (
	WCSend        = 0
	WCWrite       = 1
	WCRead        = 2
	WCRecv        = 1 << 7
	WCRecvWithImm = WCRecv + 1 // RDMA Write with immediate
)

// WCWithImm marks a completion that carries an immediate, of ibv_wc_flags.
const WCWithImm = 1 << 1

// Access rights, ibv_access_flags.
const (
	AccessLocalWrite  = 1 << 0
	AccessRemoteWrite = 1 << 1
	AccessRemoteRead  = 1 << 2
)

// Asynchronous events, ibv_event_type.
const (
	EventCQErr       = 0
	EventQPAccessErr = 3
)
