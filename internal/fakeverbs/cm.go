// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import "syscall"

// CMState is the state of an id.
type CMState int

// The states of an id. Responded is InfiniBand's active side between CONNECT_RESPONSE and
// rdma_establish, and Accepted the passive side meanwhile. Left has disconnected, or has been
// notified of it.
const (
	CMIdle CMState = iota
	CMBound
	CMAddrResolved
	CMRouteResolved
	CMListening
	CMRequested
	CMConnecting
	CMResponded
	CMAccepted
	CMConnected
	CMLeft
	CMEnded
)

// NoEvent as CMEvent.Event, for CMNext: nothing ever happens.
const NoEvent = -1

// CMEvent is an event of the connection manager, or the parameters of a call. Event is an
// rdma_cm_event_type. Status is a negative errno, or for REJECTED on fake0 a reason of InfiniBand's
// CM.
type CMEvent struct {
	Event, Status int
	// when the event is read: with Status -1, librdmacm's own error
	Errno                                  syscall.Errno
	PrivateData                            []byte // at most 255 bytes
	QPN, QKey                              uint32
	ResponderResources, InitiatorDepth     uint8
	FlowControl, RetryCount, RNRRetryCount uint8
	SRQ                                    uint8
}

// CMNext makes the next call of rdma_resolve_addr, rdma_resolve_route, rdma_connect, rdma_accept,
// rdma_disconnect or rdma_join_multicast succeed and complete with ev (its Event, Status and
// PrivateData) instead of the actual outcome. Several for the same function are used in order.
func CMNext(name string, ev CMEvent) { cCMNext(name, ev) }

// InjectCM queues an event on a live id and reports whether there is one. DISCONNECTED also closes
// the connection, and on fake1 moves its QP to the error state; other events have no side effects.
func InjectCM(id uint32, ev CMEvent) bool { return cCMInject(id, ev) }

// CMID is the state of an rdma_cm_id.
type CMID struct {
	ID, Channel      uint32 // numbers, counted since the process started
	State            CMState
	PortSpace        uint32
	Peer             uint32 // the id that it is connected to, 0 = none
	Device           int    // -1 = none
	SrcPort, DstPort uint16
	Backlog          int

	TOS                          uint8
	TOSSet                       bool
	ReuseAddr, AFOnly, AFOnlySet bool
	AckTimeout                   uint8
	Disconnects, Established     int     // successful calls of rdma_disconnect and rdma_establish
	Param                        CMEvent // of the last rdma_connect, rdma_accept or rdma_reject
}

// CMIDByNum returns the state of a live id.
func CMIDByNum(id uint32) (CMID, bool) { return cCMID(id) }

// CMIDs returns all live ids that the program knows of, oldest first.
func CMIDs() []CMID {
	var all []CMID
	for i := uint32(1); i <= cCMLast(); i++ {
		if id, ok := cCMID(i); ok {
			all = append(all, id)
		}
	}
	return all
}
