// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"strconv"
	"strings"
	"time"
)

// CompletionFlags control how a DTO completes (DAT_COMPLETION_FLAGS). The package comment describes
// what each means on the devices.
type CompletionFlags uint32

const (
	CompletionDefault  CompletionFlags = 0x00 // DAT_COMPLETION_DEFAULT_FLAG: an event that wakes a waiter
	CompletionSuppress CompletionFlags = 0x01 // DAT_COMPLETION_SUPPRESS_FLAG: no event if it succeeds
	// DAT_COMPLETION_SOLICITED_WAIT_FLAG: the sender decides which messages wake the receiver
	CompletionSolicitedWait CompletionFlags = 0x02
	// DAT_COMPLETION_UNSIGNALLED_FLAG: an event that wakes no waiter if the DTO succeeds
	CompletionUnsignalled CompletionFlags = 0x04
	// DAT_COMPLETION_BARRIER_FENCE_FLAG: wait for all earlier Reads and atomics
	CompletionBarrierFence CompletionFlags = 0x08
	// DAT_COMPLETION_EVD_THRESHOLD_FLAG: only for an EP's receives, where it is the default
	CompletionEVDThreshold CompletionFlags = 0x10

	allCompletion = CompletionSuppress | CompletionSolicitedWait | CompletionUnsignalled | CompletionBarrierFence
)

// String lists the flags by the C names without DAT_COMPLETION_.
func (f CompletionFlags) String() string {
	return names(uint32(f), "DEFAULT", "SUPPRESS", "SOLICITED_WAIT", "UNSIGNALLED", "BARRIER_FENCE", "EVD_THRESHOLD")
}

// DTOFlags control how immediate data is sent (DAT_DTO_FLAGS of the immediate data proposal).
type DTOFlags uint32

const (
	DTOImmedFlag        DTOFlags = 0x1 // DAT_DTO_IMMED_FLAG: send the immediate data, after the payload and in order
	DTOImmedConfirmFlag DTOFlags = 0x2 // DAT_DTO_IMMED_CONFIRM_FLAG: complete once the peer's receipt is confirmed
)

// String lists the flags by the C names without DAT_DTO_.
func (f DTOFlags) String() string { return names(uint32(f), "0", "IMMED", "IMMED_CONFIRM") }

// EVDFlags are the kinds of events that an EVD accepts (DAT_EVD_FLAGS).
type EVDFlags uint32

const (
	EVDCR         EVDFlags = 0x010 // DAT_EVD_CR_FLAG: connection requests
	EVDDTO        EVDFlags = 0x020 // DAT_EVD_DTO_FLAG: completions
	EVDConnection EVDFlags = 0x040 // DAT_EVD_CONNECTION_FLAG
	EVDAsync      EVDFlags = 0x100 // DAT_EVD_ASYNC_FLAG: only for the EVD that Open creates

	allEVD = EVDCR | EVDDTO | EVDConnection
)

// String lists the flags by the C names without DAT_EVD_.
func (f EVDFlags) String() string {
	return names(uint32(f), "0", "SOFTWARE", "0x2", "0x4", "0x8", "CR", "DTO", "CONNECTION", "RMR_BIND", "ASYNC")
}

// MemPriv are the access privileges of an LMR (DAT_MEM_PRIV_FLAGS).
type MemPriv uint32

const (
	MemPrivNone         MemPriv = 0x00 // DAT_MEM_PRIV_NONE_FLAG
	MemPrivLocalRead    MemPriv = 0x01 // DAT_MEM_PRIV_LOCAL_READ_FLAG: always granted
	MemPrivRemoteRead   MemPriv = 0x02 // DAT_MEM_PRIV_REMOTE_READ_FLAG
	MemPrivLocalWrite   MemPriv = 0x10 // DAT_MEM_PRIV_LOCAL_WRITE_FLAG
	MemPrivRemoteWrite  MemPriv = 0x20 // DAT_MEM_PRIV_REMOTE_WRITE_FLAG: requires MemPrivLocalWrite
	MemPrivAll          MemPriv = 0x33 // DAT_MEM_PRIV_ALL_FLAG: all of the above
	MemPrivRemoteAtomic MemPriv = 0x40 // DAT_IB_MEM_PRIV_REMOTE_ATOMIC: requires MemPrivLocalWrite
)

// String lists the privileges by the C names without DAT_MEM_PRIV_.
func (p MemPriv) String() string {
	return names(uint32(p), "NONE", "LOCAL_READ", "REMOTE_READ", "0x4", "0x8", "LOCAL_WRITE", "REMOTE_WRITE",
		"REMOTE_ATOMIC")
}

// VAType determines how peers and segments address an LMR (DAT_VA_TYPE).
type VAType uint32

const (
	VATypeVA VAType = 0 // DAT_VA_TYPE_VA: by virtual address
	VATypeZB VAType = 1 // DAT_VA_TYPE_ZB: by offset from the start
)

// CloseFlags control how an EP is disconnected or an IA closed (DAT_CLOSE_FLAGS).
type CloseFlags uint32

const (
	// DAT_CLOSE_ABRUPT_FLAG, also DAT_CLOSE_DEFAULT: DTOs in progress are flushed
	CloseAbrupt CloseFlags = 0x00
	// DAT_CLOSE_GRACEFUL_FLAG: posted requests complete first
	CloseGraceful CloseFlags = 0x01
)

// PSPFlags determine whether the program or the provider creates the EP of a connection
// (DAT_PSP_FLAGS).
type PSPFlags uint32

const (
	PSPConsumer PSPFlags = 0x00 // DAT_PSP_CONSUMER_FLAG: the program
	PSPProvider PSPFlags = 0x01 // DAT_PSP_PROVIDER_FLAG: not supported
)

// Infinite disables the timeout of a call (DAT_TIMEOUT_INFINITE).
const Infinite time.Duration = -1

// MaxPrivateData is the number of bytes of private data that every connection can carry in each
// direction. Exactly that many are delivered, padded with zeros.
const MaxPrivateData = 48

// names lists the names of the bits that are set. bits[i] is the name of bit i; none is the name of
// 0.
func names(v uint32, none string, bits ...string) string {
	if v == 0 {
		return none
	}
	var list []string
	for i := range 32 {
		switch {
		case v&(1<<i) == 0:
		case i < len(bits):
			list = append(list, bits[i])
		default:
			list = append(list, "0x"+strconv.FormatUint(1<<i, 16))
		}
	}
	return strings.Join(list, "|")
}
