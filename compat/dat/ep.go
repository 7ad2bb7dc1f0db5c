// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// EPState is the state of an EP (DAT_EP_STATE), with the numbers of dat.h. States that require
// another kind of service point, a second path or an EP without EVDs never occur.
type EPState uint32

const (
	EPUnconnected             EPState = 0  // DAT_EP_STATE_UNCONNECTED
	EPActiveConnectionPending EPState = 6  // DAT_EP_STATE_ACTIVE_CONNECTION_PENDING: after Connect
	EPConnected               EPState = 9  // DAT_EP_STATE_CONNECTED
	EPDisconnectPending       EPState = 10 // DAT_EP_STATE_DISCONNECT_PENDING: after Disconnect
	EPDisconnected            EPState = 11 // DAT_EP_STATE_DISCONNECTED
	EPCompletionPending       EPState = 12 // DAT_EP_STATE_COMPLETION_PENDING: after CR.Accept
)

// String returns the C name without DAT_EP_STATE_.
func (s EPState) String() string {
	switch s {
	case EPUnconnected:
		return "UNCONNECTED"
	case EPActiveConnectionPending:
		return "ACTIVE_CONNECTION_PENDING"
	case EPConnected:
		return "CONNECTED"
	case EPDisconnectPending:
		return "DISCONNECT_PENDING"
	case EPDisconnected:
		return "DISCONNECTED"
	case EPCompletionPending:
		return "COMPLETION_PENDING"
	}
	return "unknown"
}

// subtype returns the subtype of the error of a call that the state does not allow.
func (s EPState) subtype() Subtype {
	switch s {
	case EPUnconnected:
		return InvalidStateEPUnconnected
	case EPActiveConnectionPending:
		return InvalidStateEPActConnPending
	case EPConnected:
		return InvalidStateEPConnected
	case EPDisconnectPending:
		return InvalidStateEPDiscPending
	case EPCompletionPending:
		return InvalidStateEPComplPending
	}
	return InvalidStateEPDisconnected
}

// EPAttr configures an EP (DAT_EP_ATTR). The service type is always a reliable connection, the
// quality of service is best effort, and the maximum message sizes are those of the IA.
type EPAttr struct {
	// RecvCompletionFlags: with CompletionSolicitedWait, the EVD of the receives wakes a waiter
	// only for messages whose sender requests it. CompletionUnsignalled permits that flag for
	// receives. CompletionEVDThreshold is the default behaviour.
	RecvCompletionFlags CompletionFlags
	// RequestCompletionFlags: CompletionUnsignalled permits that flag for requests.
	RequestCompletionFlags CompletionFlags
	MaxRecvDTOs            int // outstanding receives (0 = 128)
	MaxRequestDTOs         int // outstanding requests (0 = 128)
	MaxRecvIOV             int // segments of a receive (0 = 1)
	MaxRequestIOV          int // segments of a request (0 = 1)
	// MaxRDMAReadIn and MaxRDMAReadOut limit the outstanding Reads and atomics of the peer and of
	// this side (0 = the maximum of the device, cm.None = none).
	MaxRDMAReadIn, MaxRDMAReadOut int
}

// EP is an endpoint: one end of a connection, with a queue for requests and one for receives. The
// package comment describes its states. All methods may be called concurrently; the order of
// concurrent posts is undefined.
type EP struct {
	node               lifetime.Node
	ia                 *IA
	pz                 *PZ
	recvEVD, reqEVD    *EVD
	connEVD            *EVD
	attr               EPAttr
	qp                 *verbs.QP
	requests, receives records

	number atomic.Uint32 // in the IDs of requests; a new one after each Reset
	state  atomic.Uint32 // an EPState; changed under mu
	faulty atomic.Bool   // a DTO of the connection failed other than by being flushed

	mu     sync.Mutex  // guards the fields below
	conn   *connection // the most recent one, nil before the first
	local  net.Addr    // of the connection
	remote net.Addr
}

// EPParam describes an EP (DAT_EP_PARAM).
type EPParam struct {
	IA                           *IA
	State                        EPState
	LocalAddr, RemoteAddr        net.Addr // nil without a connection
	PZ                           *PZ
	RecvEVD, RequestEVD, ConnEVD *EVD
	Attr                         EPAttr
}

const (
	defaultDTOs = 128
	recvFlags   = CompletionSolicitedWait | CompletionUnsignalled | CompletionEVDThreshold
)

// CreateEP creates an EP in the state UNCONNECTED (dat_ep_create). Its completions become events on
// recv and request, which must accept DTOs; its connection events go to conn. The EVDs may be the
// same one.
func (ia *IA) CreateEP(pz *PZ, recv, request, conn *EVD, attr EPAttr) (*EP, error) {
	const call = "IA.CreateEP"
	if err := ia.enter(call); err != nil {
		return nil, err
	}
	defer ia.node.Exit()
	switch {
	case pz == nil || pz.ia != ia:
		return nil, fault(call, InvalidHandle, InvalidHandlePZ, nil)
	case recv == nil || recv.ia != ia || recv.flags&EVDDTO == 0:
		return nil, fault(call, InvalidHandle, InvalidHandleEVDRecv, nil)
	case request == nil || request.ia != ia || request.flags&EVDDTO == 0:
		return nil, fault(call, InvalidHandle, InvalidHandleEVDRequest, nil)
	case conn == nil || conn.ia != ia || conn.flags&EVDConnection == 0:
		return nil, fault(call, InvalidHandle, InvalidHandleEVDConn, nil)
	}
	if err := attr.fill(call); err != nil {
		return nil, err
	}
	qp, err := pz.pd.CreateQP(
		verbs.QPConfig{SendCQ: request.cq, RecvCQ: recv.cq,
			Cap: verbs.QPCap{MaxSendWR: attr.MaxRequestDTOs + 1, MaxRecvWR: attr.MaxRecvDTOs,
				MaxSendSGE: attr.MaxRequestIOV, MaxRecvSGE: attr.MaxRecvIOV}})
	if err != nil {
		return nil, below(call, ResourceTEP, err)
	}
	if err := cmprovider.InitQP(qp); err != nil { // allows posting receives before connecting
		return nil, below(call, ResourceTEP, errors.Join(err, qp.Close()))
	}
	ep := &EP{ia: ia, pz: pz, recvEVD: recv, reqEVD: request, connEVD: conn, attr: attr, qp: qp}
	ep.number.Store(ia.numbers.Add(1))
	ep.requests.init(attr.MaxRequestDTOs, attr.MaxRequestIOV)
	ep.receives.init(attr.MaxRecvDTOs, attr.MaxRecvIOV)
	if err := ep.node.Init("dat.EP", ep.Free, &pz.node, &recv.node, &request.node, &conn.node); err != nil {
		return nil, fault(call, InvalidHandle, NoSubtype, errors.Join(err, qp.Close()))
	}
	ia.noteQP(qp, ep)
	ep.feed(true)
	return ep, nil
}

// fill checks the attributes and sets the defaults.
func (a *EPAttr) fill(call string) error {
	for _, n := range []*int{&a.MaxRecvDTOs, &a.MaxRequestDTOs} {
		if *n == 0 {
			*n = defaultDTOs
		}
	}
	for _, n := range []*int{&a.MaxRecvIOV, &a.MaxRequestIOV} {
		if *n == 0 {
			*n = 1
		}
	}
	switch {
	case a.MaxRecvDTOs < 0 || a.MaxRequestDTOs < 0 || a.MaxRecvIOV < 0 || a.MaxRequestIOV < 0:
		return argument(call, InvalidArg6, "negative sizes: %+v", *a)
	case a.MaxRDMAReadIn < cm.None || a.MaxRDMAReadOut < cm.None:
		return argument(call, InvalidArg6, "depths of %d and %d", a.MaxRDMAReadIn, a.MaxRDMAReadOut)
	case a.RecvCompletionFlags&^recvFlags != 0:
		return argument(call, InvalidArg6, "flags %v of the receives", a.RecvCompletionFlags)
	case a.RecvCompletionFlags&CompletionEVDThreshold != 0 && a.RecvCompletionFlags != CompletionEVDThreshold:
		return argument(call, InvalidArg6, "flags %v of the receives exclude each other", a.RecvCompletionFlags)
	case a.RequestCompletionFlags&^CompletionUnsignalled != 0:
		return argument(call, InvalidArg6, "flags %v of the requests", a.RequestCompletionFlags)
	}
	return nil
}

// feed starts or stops delivering the EP's completions to its EVDs.
func (ep *EP) feed(on bool) {
	ep.recvEVD.feed(ep.number.Load(), ep, ep.attr.RecvCompletionFlags&CompletionSolicitedWait != 0, on)
	if ep.reqEVD != ep.recvEVD {
		ep.reqEVD.feed(ep.number.Load(), ep, false, on)
	}
}

func (ep *EP) enter(call string) error {
	if ep == nil || !ep.node.Enter() {
		return fault(call, InvalidHandle, InvalidHandle1, lifetime.ErrClosed)
	}
	return nil
}

// inState returns the error of a call that the EP's state does not allow.
func inState(call string, s EPState) error { return fault(call, InvalidState, s.subtype(), nil) }

// Query describes the EP (dat_ep_query).
func (ep *EP) Query() (EPParam, error) {
	if err := ep.enter("EP.Query"); err != nil {
		return EPParam{}, err
	}
	defer ep.node.Exit()
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return EPParam{IA: ep.ia, State: ep.State(), LocalAddr: ep.local, RemoteAddr: ep.remote, PZ: ep.pz,
		RecvEVD: ep.recvEVD, RequestEVD: ep.reqEVD, ConnEVD: ep.connEVD, Attr: ep.attr}, nil
}

// Status returns the state and whether no receives and no requests are outstanding
// (dat_ep_get_status). A DTO is outstanding until Dequeue or Wait removes its completion from the
// completion queue, or that of a later one if it is suppressed.
func (ep *EP) Status() (state EPState, recvIdle, requestIdle bool, err error) {
	if err := ep.enter("EP.Status"); err != nil {
		return 0, false, false, err
	}
	defer ep.node.Exit()
	return ep.State(), ep.receives.idle(), ep.requests.idle(), nil
}

// State returns the state of the EP, even after it was freed.
func (ep *EP) State() EPState { return EPState(ep.state.Load()) }

func (ep *EP) set(s EPState) { ep.state.Store(uint32(s)) }

// Reset returns a DISCONNECTED EP to UNCONNECTED (dat_ep_reset), so that it can connect again; it
// has no effect on an UNCONNECTED one. Earlier completions stay in the EVDs. In other states the
// error is [InvalidState]. Reset waits until the old connection has ended completely.
func (ep *EP) Reset() error {
	const call = "EP.Reset"
	if err := ep.enter(call); err != nil {
		return err
	}
	defer ep.node.Exit()
	ep.mu.Lock()
	state, conn := ep.State(), ep.conn
	ep.mu.Unlock()
	switch state {
	case EPUnconnected:
		return nil
	case EPDisconnected:
	default:
		return inState(call, state)
	}
	if conn != nil {
		<-conn.over
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.State() != EPDisconnected { // another Reset was faster
		return nil
	}
	ep.settle()
	ep.feed(false)
	if err := ep.qp.Modify(verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState); err != nil {
		ep.feed(true)
		return below(call, ResourceTEP, err)
	}
	// The number must change first: a post that read the old one holds the lock that clear
	// acquires, and the QP refuses it.
	ep.number.Store(ep.ia.numbers.Add(1))
	ep.feed(true)
	ep.requests.clear()
	ep.receives.clear()
	ep.faulty.Store(false)
	if err := cmprovider.InitQP(ep.qp); err != nil {
		return below(call, ResourceTEP, err)
	}
	ep.local, ep.remote, ep.conn = nil, nil, nil
	ep.set(EPUnconnected)
	return nil
}

// settle moves the completions that have arrived so far from the CQs to the EVDs.
func (ep *EP) settle() {
	ep.recvEVD.settle()
	if ep.reqEVD != ep.recvEVD {
		ep.reqEVD.settle()
	}
}

// Free closes the connection abruptly, if there is one, and destroys the EP (dat_ep_free). The
// events of its DTOs stay in the EVDs, including outstanding ones, which are flushed; there is no
// further connection event. Free is idempotent.
func (ep *EP) Free() error {
	const call = "EP.Free"
	if ep == nil {
		return fault(call, InvalidHandle, InvalidHandle1, nil)
	}
	if !freeing(&ep.node) {
		return nil
	}
	ep.mu.Lock()
	conn := ep.conn
	ep.mu.Unlock()
	if conn != nil {
		conn.leave(CloseAbrupt, true)
		<-conn.over
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	err := ep.qp.Drain(ctx)
	ep.settle()
	ep.feed(false)
	ep.ia.noteQP(ep.qp, nil)
	err = errors.Join(err, ep.qp.Close())
	ep.node.End()
	return below(call, ResourceTEP, err)
}

// completed fills in the data of an event. quiet reports that a successful DTO wakes no waiter;
// visible is false if there is no event.
func (ep *EP) completed(wc *verbs.WC, d *DTOCompletion) (quiet, visible bool) {
	queue, recv := &ep.requests, wc.ID&idRecv != 0
	if recv {
		queue = &ep.receives
	}
	r, ok := queue.complete(int(uint32(wc.ID) >> 1))
	if !ok || r.marker {
		return false, false
	}
	*d = DTOCompletion{EP: ep, Cookie: r.cookie, Status: statusOf(wc.Status), Operation: r.op, Extension: r.ext}
	switch {
	case d.Status != DTOSuccess:
		d.Cause = ep.qp.Cause(wc)
		if d.Status != DTOErrFlushed {
			ep.faulty.Store(true)
		}
	case !recv:
		d.TransferredLength = r.length
	default:
		d.TransferredLength = wc.ByteLen
		switch {
		case wc.Flags&verbs.WCWithImm == 0:
		case wc.Opcode == verbs.WCRecvRDMAWithImm:
			d.Operation, d.ImmedData = DTOReceiveRDMAImmed, wc.Imm
		default:
			d.Operation, d.ImmedData = DTOReceiveImmed, wc.Imm
		}
	}
	return r.quiet, true
}
