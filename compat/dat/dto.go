// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// DTO is the kind of a data transfer operation (DAT_DTOS), with the numbers of the immediate data
// proposal.
type DTO uint32

const (
	DTOSend                  DTO = iota // DAT_SEND
	DTOSendImmed                        // DAT_SEND_IMMED: a PostSendImmed with an immediate
	DTORDMAWrite                        // DAT_RDMA_WRITE
	DTORDMAWriteImmed                   // DAT_RDMA_WRITE_IMMED: a PostWriteImmed with an immediate
	DTORDMARead                         // DAT_RDMA_READ
	DTOReceive                          // DAT_RECEIVE: a message without an immediate
	DTOReceiveWithInvalidate            // DAT_RECEIVE_WITH_INVALIDATE: never returned
	DTOReceiveImmed                     // DAT_RECEIVE_IMMED: a message with an immediate
	DTOReceiveRDMAImmed                 // DAT_RECEIVE_RDMA_IMMED: the immediate of an RDMA Write
	DTOBindMW                           // DAT_BIND_MW: never returned
	DTOExtension                        // DAT_EXTENSION: an atomic; see DTOCompletion.Extension
	DTOInvalid                          // DAT_INVALID
)

var dtoNames = [...]string{"SEND", "SEND_IMMED", "RDMA_WRITE", "RDMA_WRITE_IMMED", "RDMA_READ", "RECEIVE",
	"RECEIVE_WITH_INVALIDATE", "RECEIVE_IMMED", "RECEIVE_RDMA_IMMED", "BIND_MW", "EXTENSION", "INVALID"}

// String returns the C name without DAT_.
func (d DTO) String() string {
	if int(d) < len(dtoNames) {
		return dtoNames[d]
	}
	return fmt.Sprintf("DTO %d", uint32(d))
}

// Extension is the kind of an extended DTO. The first two have the numbers of DAT_IB_EXT_TYPE; DAPL
// has no masked atomics.
type Extension uint32

const (
	FetchAndAdd       Extension = 0  // DAT_IB_FETCH_AND_ADD
	CmpAndSwap        Extension = 1  // DAT_IB_CMP_AND_SWAP
	MaskedFetchAndAdd Extension = 64 // not in DAPL
	MaskedCmpAndSwap  Extension = 65 // not in DAPL
)

// String returns the C name without DAT_IB_.
func (x Extension) String() string {
	switch x {
	case FetchAndAdd:
		return "FETCH_AND_ADD"
	case CmpAndSwap:
		return "CMP_AND_SWAP"
	case MaskedFetchAndAdd:
		return "MASKED_FETCH_AND_ADD"
	case MaskedCmpAndSwap:
		return "MASKED_CMP_AND_SWAP"
	}
	return fmt.Sprintf("extension %d", uint32(x))
}

// DTOStatus is the result of a DTO (DAT_DTO_COMPLETION_STATUS). Values other than DTOSuccess are
// errors.
type DTOStatus uint32

const (
	DTOSuccess             DTOStatus = iota // DAT_DTO_SUCCESS
	DTOErrFlushed                           // DAT_DTO_ERR_FLUSHED: the connection ended first
	DTOErrLocalLength                       // DAT_DTO_ERR_LOCAL_LENGTH: the message is longer than the receive
	DTOErrLocalEP                           // DAT_DTO_ERR_LOCAL_EP
	DTOErrLocalProtection                   // DAT_DTO_ERR_LOCAL_PROTECTION: local memory
	DTOErrBadResponse                       // DAT_DTO_ERR_BAD_RESPONSE
	DTOErrRemoteAccess                      // DAT_DTO_ERR_REMOTE_ACCESS: the peer's memory
	DTOErrRemoteResponder                   // DAT_DTO_ERR_REMOTE_RESPONDER: the peer could not perform it
	DTOErrTransport                         // DAT_DTO_ERR_TRANSPORT
	DTOErrReceiverNotReady                  // DAT_DTO_ERR_RECEIVER_NOT_READY
	DTOErrPartialPacket                     // DAT_DTO_ERR_PARTIAL_PACKET: never returned
)

var dtoStatusNames = [...]string{"DAT_DTO_SUCCESS", "DAT_DTO_ERR_FLUSHED", "DAT_DTO_ERR_LOCAL_LENGTH",
	"DAT_DTO_ERR_LOCAL_EP", "DAT_DTO_ERR_LOCAL_PROTECTION", "DAT_DTO_ERR_BAD_RESPONSE", "DAT_DTO_ERR_REMOTE_ACCESS",
	"DAT_DTO_ERR_REMOTE_RESPONDER",
	"DAT_DTO_ERR_TRANSPORT", "DAT_DTO_ERR_RECEIVER_NOT_READY", "DAT_DTO_ERR_PARTIAL_PACKET"}

// Error returns the C name.
func (s DTOStatus) Error() string {
	if int(s) < len(dtoStatusNames) {
		return dtoStatusNames[s]
	}
	return fmt.Sprintf("DTO status %d", uint32(s))
}

// String returns the C name.
func (s DTOStatus) String() string { return s.Error() }

// statusOf converts the status of a completion.
func statusOf(s verbs.WCStatus) DTOStatus {
	switch s {
	case verbs.WCSuccess:
		return DTOSuccess
	case verbs.WCWRFlushErr:
		return DTOErrFlushed
	case verbs.WCLocLenErr:
		return DTOErrLocalLength
	case verbs.WCLocQPOpErr, verbs.WCLocEECOpErr:
		return DTOErrLocalEP
	case verbs.WCLocProtErr, verbs.WCLocAccessErr:
		return DTOErrLocalProtection
	case verbs.WCBadRespErr:
		return DTOErrBadResponse
	case verbs.WCRemAccessErr:
		return DTOErrRemoteAccess
	case verbs.WCRemOpErr, verbs.WCRemInvReqErr, verbs.WCRemAbortErr:
		return DTOErrRemoteResponder
	case verbs.WCRNRRetryExcErr:
		return DTOErrReceiverNotReady
	}
	return DTOErrTransport
}

// DTOCompletion is the data of a DTO completion event (DAT_DTO_COMPLETION_EVENT_DATA as modified by
// the proposal).
type DTOCompletion struct {
	EP        *EP       // the endpoint to which the DTO was posted
	Cookie    uint64    // as passed to the post
	Status    DTOStatus //
	Operation DTO       // for a successful receive what arrived, otherwise DTOReceive
	// TransferredLength is the number of bytes sent, written, read or received; for
	// DTOReceiveRDMAImmed, the number that the peer wrote. It is 0 if the DTO failed.
	TransferredLength uint32
	ImmedData         uint32    // for DTOReceiveImmed and DTOReceiveRDMAImmed
	Extension         Extension // for DTOExtension
	Cause             error     // why the DTO failed, as verbs.QP.Cause explains it; nil if it succeeded
}

// Err returns nil if the DTO succeeded, otherwise its Status as an error.
func (c *DTOCompletion) Err() error {
	if c.Status == DTOSuccess {
		return nil
	}
	return c.Status
}
