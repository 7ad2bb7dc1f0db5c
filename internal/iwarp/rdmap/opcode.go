// SPDX-License-Identifier: BSD-3-Clause

package rdmap

import "fmt"

// Opcode is the type of an RDMAP message.
type Opcode uint8

// The opcodes.
const (
	// OpWrite: RDMA Write, tagged (RFC 5040 section 4.1).
	OpWrite Opcode = 0
	// OpReadRequest: RDMA Read Request, queue 1 (RFC 5040 section 4.1).
	OpReadRequest Opcode = 1
	// OpReadResponse: RDMA Read Response, tagged (RFC 5040 section 4.1).
	OpReadResponse Opcode = 2
	// OpSend: Send, queue 0 (RFC 5040 section 4.1).
	OpSend Opcode = 3
	// OpSendInv: Send with Invalidate, queue 0 (RFC 5040 section 4.1).
	OpSendInv Opcode = 4
	// OpSendSE: Send with Solicited Event, queue 0 (RFC 5040 section 4.1).
	OpSendSE Opcode = 5
	// OpSendSEInv: Send with Solicited Event and Invalidate, queue 0 (RFC 5040 section 4.1).
	OpSendSEInv Opcode = 6
	// OpTerminate: Terminate, queue 2 (RFC 5040 section 4.1).
	OpTerminate Opcode = 7
	// OpImmediate: Immediate Data, queue 0 (RFC 7306 section 4.1).
	OpImmediate Opcode = 8
	// OpImmediateSE: Immediate Data with Solicited Event, queue 0 (RFC 7306 section 4.1).
	OpImmediateSE Opcode = 9
	// OpAtomicRequest: Atomic Request, queue 1 (RFC 7306 section 4.1).
	OpAtomicRequest Opcode = 10
	// OpAtomicResponse: Atomic Response, queue 3 (RFC 7306 section 4.1).
	OpAtomicResponse Opcode = 11
)

// Names from the IANA registry (RFC 6580 section 3.4, RFC 7306 section 10).
var opcodeNames = [...]string{
	OpWrite:          "RDMA Write",
	OpReadRequest:    "RDMA Read Request",
	OpReadResponse:   "RDMA Read Response",
	OpSend:           "Send",
	OpSendInv:        "Send with Invalidate",
	OpSendSE:         "Send with Solicited Event",
	OpSendSEInv:      "Send with Solicited Event and Invalidate",
	OpTerminate:      "Terminate",
	OpImmediate:      "Immediate Data",
	OpImmediateSE:    "Immediate Data with Solicited Event",
	OpAtomicRequest:  "Atomic Request",
	OpAtomicResponse: "Atomic Response",
}

// String returns the name that the RFCs use.
func (op Opcode) String() string {
	if int(op) < len(opcodeNames) {
		return opcodeNames[op]
	}
	return fmt.Sprintf("Opcode(%d)", uint8(op))
}
