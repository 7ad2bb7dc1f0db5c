// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"
	"syscall"
)

// Event identifies what happened to a connection or connection attempt, with the values of enum
// rdma_cm_event_type.
type Event uint8

const (
	EventAddrResolved    Event = iota // RDMA_CM_EVENT_ADDR_RESOLVED
	EventAddrError                    // RDMA_CM_EVENT_ADDR_ERROR: the address could not be resolved
	EventRouteResolved                // RDMA_CM_EVENT_ROUTE_RESOLVED
	EventRouteError                   // RDMA_CM_EVENT_ROUTE_ERROR: there is no route to the address
	EventConnectRequest               // RDMA_CM_EVENT_CONNECT_REQUEST
	EventConnectResponse              // RDMA_CM_EVENT_CONNECT_RESPONSE
	EventConnectError                 // RDMA_CM_EVENT_CONNECT_ERROR: connection setup failed
	// RDMA_CM_EVENT_UNREACHABLE: the peer did not answer, or has no such datagram service
	EventUnreachable
	EventRejected       // RDMA_CM_EVENT_REJECTED: the peer refused
	EventEstablished    // RDMA_CM_EVENT_ESTABLISHED
	EventDisconnected   // RDMA_CM_EVENT_DISCONNECTED
	EventDeviceRemoval  // RDMA_CM_EVENT_DEVICE_REMOVAL: the device is being removed
	EventMulticastJoin  // RDMA_CM_EVENT_MULTICAST_JOIN
	EventMulticastError // RDMA_CM_EVENT_MULTICAST_ERROR: joining the group failed, or membership was lost
	EventAddrChange     // RDMA_CM_EVENT_ADDR_CHANGE: the network interface of the address changed
	EventTimewaitExit   // RDMA_CM_EVENT_TIMEWAIT_EXIT: no packet of the connection can still arrive
)

var eventTexts = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
	"CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
	"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"}

// String returns the C name.
func (e Event) String() string {
	if e.known() {
		return "RDMA_CM_EVENT_" + eventTexts[e]
	}
	return fmt.Sprintf("Event(%d)", uint8(e))
}

// known reports whether the event has a name here.
func (e Event) known() bool { return int(e) < len(eventTexts) }

// EventError is an event of the kernel's connection manager that ended a connection or connection
// attempt.
type EventError struct {
	Event Event
	// Status is the event's status: a negative errno, the reason for a rejection (InfiniBand
	// Architecture volume 1, 12.6.7.2), or the status in a datagram service's answer (12.11.2.2).
	Status int
	// Err is the system error that Status means, or nil.
	Err error
}

// Error returns for example "RDMA_CM_EVENT_REJECTED: invalid service ID (8)".
func (e *EventError) Error() string {
	s := e.Event.String()
	switch {
	case e.Status < 0:
		return s + ": " + syscall.Errno(-e.Status).Error()
	case e.Event == EventRejected:
		return s + ": " + codeText(e.Status, rejectTexts)
	case e.Event == EventUnreachable:
		return s + ": " + codeText(e.Status, sidrTexts)
	case e.Status > 0:
		return fmt.Sprintf("%s: status %d", s, e.Status)
	}
	return s
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

func codeText(code int, texts map[int]string) string {
	if text := texts[code]; text != "" {
		return fmt.Sprintf("%s (%d)", text, code)
	}
	return fmt.Sprintf("code %d", code)
}

// The codes that programs encounter.
const (
	rejectNoListener = 8
	rejectConsumer   = 28
	sidrReject       = 2
)

var rejectTexts = map[int]string{1: "no QP", 3: "no resources", 4: "time-out", 5: "request not supported",
	6: "invalid communication ID", 7: "invalid communication instance", rejectNoListener: "invalid service ID",
	9: "invalid transport service type", 10: "stale connection", 12: "invalid GID", 13: "invalid LID", 14: "invalid SL",
	15: "invalid traffic class", 16: "invalid hop limit", 17: "invalid packet rate", 24: "port and CM redirection",
	25: "port redirection", 26: "invalid path MTU", 27: "insufficient responder resources",
	rejectConsumer: "consumer reject",
	29:             "RNR retry count rejected", 30: "duplicate local communication ID", 31: "invalid class version",
	32: "invalid flow label"}

var sidrTexts = map[int]string{1: "service ID not supported", sidrReject: "rejected by the service provider",
	3: "no QP available", 4: "redirected", 5: "version not supported"}

// eventError returns the error that an event with a status means to the caller.
func eventError(ev Event, status int) error {
	e := &EventError{Event: ev, Status: status}
	switch {
	case status < 0:
		e.Err = syscall.Errno(-status)
		if syscall.Errno(-status) == syscall.ETIMEDOUT {
			e.Err = fmt.Errorf("%w: %w", ErrSetupTimeout, e.Err)
		}
	case ev == EventRejected && status == rejectNoListener:
		e.Err = syscall.ECONNREFUSED
	}
	return e
}
