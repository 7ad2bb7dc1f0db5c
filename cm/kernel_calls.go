// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/verbs"
)

// The calls of librdmacm as interfaces over plain Go values, implemented by cgo_cm.go. The files
// kernel_* use nothing else of the library, so they build and can be tested without C. Errors are
// errnos.

// rdmaLibrary is librdmacm.
type rdmaLibrary interface {
	// load returns why the library cannot be used, as an error that Is verbs.ErrNoDevice.
	load() error
	open() (rawChannel, error)
}

// librdmacm is the library of this process. Tests replace it.
var librdmacm = library()

// rawChannel is an event channel (struct rdma_event_channel).
type rawChannel interface {
	create(key uintptr, ps PortSpace) (rawID, error)
	// next reads an event and acknowledges it; the error is EAGAIN if there is none.
	next() (rawEvent, error)
	// wait calls done whenever an event may be pending, until done returns true. After stop it
	// returns an error.
	wait(done func() bool) error
	stop()
	// close frees the channel. It is called after stop, once wait has returned and no IDs are left.
	close()
}

// rawID is a connection identifier (struct rdma_cm_id). Its owner ensures that it is not used after
// destroy.
type rawID interface {
	setKey(key uintptr) // of its events
	where() rawPlace
	setTOS(tos uint8) error
	// setAckTimeout sets the code of the retransmission timeout.
	setAckTimeout(code uint8) error
	// setReuseAddr lets other IDs use the address of this one.
	setReuseAddr() error
	// setAFOnly restricts an ID to connections of its own address family.
	setAFOnly() error
	bind(a netip.AddrPort) error
	listen(backlog int) error
	resolveAddr(from, to netip.AddrPort, limit time.Duration) error
	resolveRoute(limit time.Duration) error
	// qpAttr returns the attributes to set when a QP moves to a state (rdma_init_qp_attr(3)).
	qpAttr(to verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error)
	connect(p rawParam) error
	accept(p rawParam) error
	reject(data []byte) error
	establish() error
	disconnect() error
	join(group netip.AddrPort, key uintptr) error
	leave(group netip.AddrPort) error
	// destroy frees the ID. It waits only for a concurrent call of next.
	destroy() error
}

// rawEvent is a copy of an acknowledged event.
type rawEvent struct {
	event  Event
	status int // negative errno, or a reason
	key    uintptr
	group  uintptr
	id     rawID     // of a request
	end    *endpoint // the endpoint for id, once there is one
	// From the point of view of the event's receiver: what the peer requests, and what it offers.
	responderResources, initiatorDepth int
	datagram                           Datagram
	data                               []byte
}

// rawParam has the parameters of connect and accept.
type rawParam struct {
	qpn                     uint32
	responderResources      int
	initiatorDepth          int
	retryCount, rnrRetryCnt uint8
	srq                     bool
	data                    []byte
}

// rawPlace is the device and the addresses of an ID.
type rawPlace struct {
	local, remote netip.AddrPort
	device        string // "" = not bound
	port          int
}
