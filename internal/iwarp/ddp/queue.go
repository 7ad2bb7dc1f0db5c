// SPDX-License-Identifier: BSD-3-Clause

package ddp

// Queue numbers of untagged messages, as RDMAP assigns them.
const (
	// QNSend takes Sends and Immediate Data (RFC 5040 section 4.1,
	// RFC 7306 section 4.1).
	QNSend = 0
	// QNReadRequest takes Read Requests and Atomic Requests
	// (RFC 5040 section 4.1, RFC 7306 section 4.1).
	QNReadRequest = 1
	// QNTerminate takes Terminates (RFC 5040 section 4.1).
	QNTerminate = 2
	// QNAtomicResponse takes Atomic Responses (RFC 7306 section 4.1).
	QNAtomicResponse = 3
)
