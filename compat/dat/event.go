// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"fmt"
	"net"
)

// EventNumber is the kind of an event (DAT_EVENT_NUMBER).
type EventNumber uint32

const (
	DTOCompletionEvent     EventNumber = 0x00001 // DAT_DTO_COMPLETION_EVENT: Event.DTO; atomics too
	ConnectionRequestEvent EventNumber = 0x02001 // DAT_CONNECTION_REQUEST_EVENT: Event.CR
	// DAT_CONNECTION_EVENT_ESTABLISHED: Event.Connection, as for all that follow
	ConnectionEstablished  EventNumber = 0x04001
	ConnectionPeerRejected EventNumber = 0x04002 // DAT_CONNECTION_EVENT_PEER_REJECTED: by the peer's program
	// DAT_CONNECTION_EVENT_NON_PEER_REJECTED: no listener, or incompatible devices
	ConnectionNonPeerRejected     EventNumber = 0x04003
	ConnectionAcceptCompletionErr EventNumber = 0x04004 // DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR
	ConnectionDisconnected        EventNumber = 0x04005 // DAT_CONNECTION_EVENT_DISCONNECTED: by either side
	ConnectionBroken              EventNumber = 0x04006 // DAT_CONNECTION_EVENT_BROKEN: by a fault
	ConnectionTimedOut            EventNumber = 0x04007 // DAT_CONNECTION_EVENT_TIMED_OUT
	ConnectionUnreachable         EventNumber = 0x04008 // DAT_CONNECTION_EVENT_UNREACHABLE
	// DAT_ASYNC_ERROR_EVD_OVERFLOW: Event.Async, as for all that follow
	AsyncEVDOverflow    EventNumber = 0x08001
	AsyncIACatastrophic EventNumber = 0x08002 // DAT_ASYNC_ERROR_IA_CATASTROPHIC: the device failed
	AsyncEPBroken       EventNumber = 0x08003 // DAT_ASYNC_ERROR_EP_BROKEN
)

var eventNames = map[EventNumber]string{
	DTOCompletionEvent: "DAT_DTO_COMPLETION_EVENT", ConnectionRequestEvent: "DAT_CONNECTION_REQUEST_EVENT",
	ConnectionEstablished:         "DAT_CONNECTION_EVENT_ESTABLISHED",
	ConnectionPeerRejected:        "DAT_CONNECTION_EVENT_PEER_REJECTED",
	ConnectionNonPeerRejected:     "DAT_CONNECTION_EVENT_NON_PEER_REJECTED",
	ConnectionAcceptCompletionErr: "DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR",
	ConnectionDisconnected:        "DAT_CONNECTION_EVENT_DISCONNECTED", ConnectionBroken: "DAT_CONNECTION_EVENT_BROKEN",
	ConnectionTimedOut: "DAT_CONNECTION_EVENT_TIMED_OUT", ConnectionUnreachable: "DAT_CONNECTION_EVENT_UNREACHABLE",
	AsyncEVDOverflow: "DAT_ASYNC_ERROR_EVD_OVERFLOW", AsyncIACatastrophic: "DAT_ASYNC_ERROR_IA_CATASTROPHIC",
	AsyncEPBroken: "DAT_ASYNC_ERROR_EP_BROKEN",
}

// String returns the C name.
func (n EventNumber) String() string {
	if s, ok := eventNames[n]; ok {
		return s
	}
	return fmt.Sprintf("event %#x", uint32(n))
}

// Event is an event delivered by an EVD (DAT_EVENT). Only the field that corresponds to Number is
// set.
type Event struct {
	Number     EventNumber
	EVD        *EVD
	DTO        DTOCompletion
	CR         CRArrival
	Connection Connection
	Async      AsyncError
}

// CRArrival is the data of a connection request event (DAT_CR_ARRIVAL_EVENT_DATA). Private data is
// never truncated.
type CRArrival struct {
	PSP       *PSP
	LocalAddr net.Addr // the address that the peer connects to
	ConnQual  uint64   // of the PSP
	CR        *CR
}

// Connection is the data of a connection event (DAT_CONNECTION_EVENT_DATA).
type Connection struct {
	EP *EP
	// PrivateData is the peer's private data: of its acceptance or rejection, or on the passive
	// side of its request. It belongs to the program.
	PrivateData []byte
	Cause       error // why there is no connection, or why it ended; nil if it was established
}

// AsyncError is the data of an asynchronous event (DAT_ASYNCH_ERROR_EVENT_DATA). It concerns EVD or
// EP, or the IA if both are nil.
type AsyncError struct {
	EVD   *EVD
	EP    *EP
	Cause error // if known
}
