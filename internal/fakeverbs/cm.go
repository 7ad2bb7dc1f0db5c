// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import "syscall"

// CMState is where an id stands.
type CMState int

// The states of an id. Responded is the active side of InfiniBand between CONNECT_RESPONSE and
// rdma_establish, Accepted the passive side at that time; Left has disconnected or was told so.
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

// NoEvent in CMEvent.Event, for CMNext: nothing happens, ever.
const NoEvent = -1

// CMEvent is an event of the connection manager, or the parameters of a call. Event is an
// rdma_cm_event_type, Status a negative errno, or, of REJECTED on fake0, a reason of InfiniBand's
// CM.
type CMEvent struct {
	Event, Status int
	// while it is taken: with Status -1, what librdmacm itself failed with
	Errno                                  syscall.Errno
	PrivateData                            []byte // at most 255
	QPN, QKey                              uint32
	ResponderResources, InitiatorDepth     uint8
	FlowControl, RetryCount, RNRRetryCount uint8
	SRQ                                    uint8
}

// CMNext makes the next call of rdma_resolve_addr, rdma_resolve_route, rdma_connect, rdma_accept,
// rdma_disconnect or rdma_join_multicast succeed and end with ev (its Event, Status and
// PrivateData) in place of what would have happened. Several for one function are used in turn.
func CMNext(name string, ev CMEvent) { cCMNext(name, ev) }

// InjectCM queues an event on an id that is alive and reports whether there is one. DISCONNECTED
// also ends the connection, and on fake1 moves its QP to the error state; no other event changes
// anything.
func InjectCM(id uint32, ev CMEvent) bool { return cCMInject(id, ev) }

// CMID is what is known of an rdma_cm_id.
type CMID struct {
	ID, Channel      uint32 // which one since the process began
	State            CMState
	PortSpace        uint32
	Peer             uint32 // the id that it is connected to, 0 for none
	Device           int    // -1 for none
	SrcPort, DstPort uint16
	Backlog          int

	TOS                          uint8
	TOSSet                       bool
	ReuseAddr, AFOnly, AFOnlySet bool
	AckTimeout                   uint8
	Disconnects, Established     int     // calls of rdma_disconnect and rdma_establish that succeeded
	Param                        CMEvent // of the last rdma_connect, rdma_accept or rdma_reject
}

// CMIDByNum returns what is known of an id that is alive.
func CMIDByNum(id uint32) (CMID, bool) { return cCMID(id) }

// CMIDs returns all ids that are alive and known to the program, oldest first.
func CMIDs() []CMID {
	var all []CMID
	for i := uint32(1); i <= cCMLast(); i++ {
		if id, ok := cCMID(i); ok {
			all = append(all, id)
		}
	}
	return all
}
