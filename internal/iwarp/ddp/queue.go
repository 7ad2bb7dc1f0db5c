// SPDX-License-Identifier: BSD-3-Clause

package ddp

// Queue numbers of untagged messages, as RDMAP assigns them.
const (
	// QNSend carries Sends and Immediate Data (RFC 5040 section 4.1, RFC 7306 section 4.1).
	QNSend = 0
	// QNReadRequest carries Read Requests and Atomic Requests (RFC 5040 section 4.1, RFC 7306
	// section 4.1).
	QNReadRequest = 1
	// QNTerminate carries Terminates (RFC 5040 section 4.1).
	QNTerminate = 2
	// QNAtomicResponse carries Atomic Responses (RFC 7306 section 4.1).
	QNAtomicResponse = 3
)
