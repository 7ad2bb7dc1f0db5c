// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/verbs"
)

// ID is a connection or an attempt to establish one (struct rdma_cm_id). All methods may be called
// concurrently.
type ID struct {
	node    lifetime.Node
	vctx    *verbs.Context
	address string
	route   Route                 // of the active side, else nil
	bind    func(*verbs.QP) error // moves a QP from RESET to INIT
	port    int

	ended chan struct{} // closed when Close is done

	done chan struct{} // closed when the connection ends, or by Close

	mu       sync.Mutex         // guards the fields below
	used     bool               // Connect or Accept was called
	closing  bool               // Close was called
	aborted  bool               // Abort was called
	hurry    context.CancelFunc // ends Close's wait for the peer
	cancel   context.CancelFunc // cancels a Connect or Accept in progress
	idle     chan struct{}      // closed when that call has returned
	conn     ProviderConn       // nil before the connection is established
	qp       *verbs.QP
	local    net.Addr // of the connection; nil until it is established
	remote   net.Addr // of the connection, or of the route until it is established
	groups   map[*Multicast]struct{}
	doneOnce sync.Once
	onDone   func() // see whenDone
}

// Resolve finds the device and the route for a connection to address, "host:port"
// (rdma_resolve_addr(3) followed by rdma_resolve_route(3)). It does not contact the peer. The
// caller closes the ID.
func Resolve(ctx context.Context, address string, cfg Config) (*ID, error) {
	r, vctx, err := resolveRoute(ctx, address, cfg)
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = ctx.Err()
		}
		return nil, opError("Resolve", address, err)
	}
	id := newID(vctx, address, r.RemoteAddr(), r.PortNum(), r.Bind)
	id.route = r
	return id, nil
}

// newID returns a new ID. bind belongs to its route, or to the request that it accepts.
func newID(vctx *verbs.Context, address string, remote net.Addr, port int, bind func(*verbs.QP) error) *ID {
	id := &ID{vctx: vctx, address: address, remote: remote, port: port, bind: bind, done: make(chan struct{}),
		ended: make(chan struct{})}
	id.node.SetOwner(vctx.Device())
	_ = id.node.Init("cm.ID", id.Close) // it has no parent that could refuse
	return id
}

// Context returns the verbs context for the objects of the connection.
func (id *ID) Context() *verbs.Context { return id.vctx }

// PortNum returns the device port, from 1, that the connection uses (port_num of struct
// rdma_cm_id).
func (id *ID) PortNum() int { return id.port }

// BindQP moves a QP from RESET to INIT, so that receives can be posted before Connect or Accept, as
// iWARP requires. A QP in INIT is left as it is. Connect and Accept bind a QP that is still in
// RESET.
func (id *ID) BindQP(qp *verbs.QP) error {
	return opError("BindQP", id.address, bindQP(id.vctx, qp, id.bind))
}

// bindQP implements BindQP. Its errors are bare causes.
func bindQP(vctx *verbs.Context, qp *verbs.QP, bind func(*verbs.QP) error) error {
	if qp == nil {
		return fmt.Errorf("%w: no QP", verbs.ErrInvalid)
	}
	if qp.Context() != vctx {
		return fmt.Errorf("%w: the QP is of another context", verbs.ErrForeign)
	}
	attr, err := qp.Query()
	if err != nil {
		return err
	}
	switch {
	case attr.State == verbs.QPStateInit:
		return nil
	case attr.State == verbs.QPStateReset:
		return bind(qp)
	case qp.Type() == verbs.QPTypeUD && (attr.State == verbs.QPStateRTR || attr.State == verbs.QPStateRTS):
		return nil // a UD QP can be in use by other IDs
	}
	return &verbs.StateError{State: attr.State, Why: "a connection needs a QP in RESET or INIT"}
}

// Connect connects qp to the peer and returns when the connection is established (rdma_connect(3)
// up to RDMA_CM_EVENT_ESTABLISHED). If ctx is done first, the attempt is abandoned and the error Is
// ctx.Err(). If the peer refuses, the error wraps a *[RejectedError]. If the cause is an event of
// the kernel with an errno, including a refusal, the error wraps an *[EventError]. An ID connects
// only once.
//
// librdmacm can select a local port that is already in use in the host's TCP stack, which kernel
// siw uses. Connect then tries up to seven others, unless Config.Source has a port.
//
// After an abandoned Connect, kernel siw keeps using the QP until the peer answers, for at most 10
// s; Close of the QP waits for that.
func (id *ID) Connect(ctx context.Context, qp *verbs.QP, param ConnParam) error {
	if err := id.fresh(); err != nil {
		return opError("Connect", id.address, err)
	}
	if err := bindQP(id.vctx, qp, id.bind); err != nil {
		return opError("Connect", id.address, err)
	}
	return id.establish(ctx, "Connect", qp, func(ctx context.Context) (ProviderConn, error) {
		return id.route.Connect(ctx, qp, param)
	})
}

// fresh returns an error if the ID is closed, or if Connect or Accept was called.
func (id *ID) fresh() error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.freshLocked()
}

func (id *ID) freshLocked() error {
	switch {
	case id.closing:
		return verbs.ErrClosed
	case id.used:
		return fmt.Errorf("%w: an ID makes one connection", verbs.ErrInvalid)
	}
	return nil
}

// establish makes one attempt, which Close can cancel.
func (id *ID) establish(ctx context.Context, op string, qp *verbs.QP,
	attempt func(context.Context) (ProviderConn, error)) error {
	id.mu.Lock()
	if err := id.freshLocked(); err != nil {
		id.mu.Unlock()
		return opError(op, id.address, err)
	}
	id.used = true
	attemptCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := make(chan struct{})
	defer close(idle)
	id.cancel, id.idle = cancel, idle
	id.mu.Unlock()

	conn, err := attempt(attemptCtx)
	var local, remote net.Addr
	if err == nil {
		local, remote = conn.LocalAddr(), conn.RemoteAddr()
	}

	id.mu.Lock()
	defer id.mu.Unlock()
	if err == nil {
		id.conn, id.qp, id.local, id.remote = conn, qp, local, remote
		go func() {
			<-conn.Done()
			id.finish()
		}()
		return nil
	}
	if id.closing && ctx.Err() == nil && errors.Is(err, context.Canceled) {
		err = verbs.ErrClosed
	}
	return opError(op, id.address, err)
}

func (id *ID) finish() {
	id.doneOnce.Do(func() {
		id.mu.Lock()
		f := id.onDone
		close(id.done)
		id.mu.Unlock()
		if f != nil {
			f()
		}
	})
}

// whenDone arranges for f to be called once Done is closed, or at once if it already is. whenDone
// is called once.
func (id *ID) whenDone(f func()) {
	id.mu.Lock()
	id.onDone = f
	var ended bool
	select {
	case <-id.done:
		ended = true
	default:
	}
	id.mu.Unlock()
	if ended {
		f()
	}
}

func (id *ID) connection() ProviderConn {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.conn
}

// QP returns the connected QP, nil before the connection is established.
func (id *ID) QP() *verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.qp
}

// LocalAddr returns the local address of the connection, nil before it is established.
func (id *ID) LocalAddr() net.Addr {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.local
}

// RemoteAddr returns the peer's address.
func (id *ID) RemoteAddr() net.Addr {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.remote
}

// PrivateData returns the peer's private data: from its request on the passive side, from its
// acceptance on the active side. It is nil before the connection is established.
func (id *ID) PrivateData() []byte {
	if c := id.connection(); c != nil {
		return c.PrivateData()
	}
	return nil
}

// Depths returns the negotiated numbers of outstanding Reads and atomics, as requester (ORD) and as
// responder (IRD); 0 before the connection is established.
func (id *ID) Depths() (ord, ird int) {
	if c := id.connection(); c != nil {
		return c.Depths()
	}
	return 0, 0
}

// PeerDepths returns the numbers of outstanding Reads and atomics that the peer sent during
// connection setup, as requester (its ORD, initiator_depth of struct rdma_conn_param) and as
// responder (its IRD, responder_resources). They are from its request on the passive side, from its
// acceptance on the active side (RFC 6581 section 9.1), and -1 if the peer sent none or before the
// connection is established. 16,383 from an iWARP peer means that it does not negotiate. On kernel
// devices they are the numbers that the kernel's connection manager reports; RNICs other than siw
// may have adapted them to this side's.
func (id *ID) PeerDepths() (ord, ird int) {
	if c := id.connection(); c != nil {
		return c.PeerDepths()
	}
	return -1, -1
}

// Disconnect ends the connection (rdma_disconnect(3)): the QP enters the error state, its requests
// are flushed, and the peer is notified. When Disconnect returns, the QP's completions are in the
// CQs. See the package documentation for the devices on which the peer receives everything that has
// completed.
func (id *ID) Disconnect() error {
	if c := id.connection(); c != nil {
		return opError("Disconnect", id.address, c.Disconnect())
	}
	return opError("Disconnect", id.address, fmt.Errorf("%w: not connected", verbs.ErrInvalid))
}

// Done returns a channel that is closed when the connection has ended, through either side or a
// failure, and the QP's requests have been flushed. Close closes it too.
//
// On InfiniBand and RoCE the failure of one of the QP's own requests is detected only when its
// completion is polled. A program that waits for Done must therefore also poll.
func (id *ID) Done() <-chan struct{} { return id.done }

// Err returns the reason for the end of the connection, or nil before it ends. The error Is io.EOF
// if the peer disconnected, Is verbs.ErrClosed after a local disconnect, or wraps a
// *verbs.TerminateError. It is non-nil once a flushed request has been polled, even if Done is not
// closed yet.
func (id *ID) Err() error {
	if c := id.connection(); c != nil {
		return c.Err()
	}
	return nil
}

// Close disconnects, cancels a Connect in progress, and returns when the connection has ended
// completely. It waits for an unresponsive peer for at most the device's close timeout, 3 s by
// default; use [ID.CloseContext] to wait less. The QP still belongs to the caller. Close is
// idempotent and may be called on nil.
func (id *ID) Close() error { return id.CloseContext(context.Background()) }

// CloseContext is like Close, but stops waiting for the peer when ctx is done; the error then Is
// ctx.Err(). The ID is closed in any case. Data sent before may then be lost, and the peer may see
// a failure.
func (id *ID) CloseContext(ctx context.Context) error {
	if id == nil {
		return nil
	}
	if first, _ := id.node.BeginClose(); !first { // it has no children
		return nil
	}
	defer close(id.ended)
	ctx, hurry := context.WithCancel(ctx)
	defer hurry()
	var err error
	id.mu.Lock()
	id.closing, id.hurry = true, hurry
	if id.cancel != nil {
		id.cancel()
	}
	if id.aborted {
		hurry()
	}
	idle := id.idle
	groups := slices.Collect(maps.Keys(id.groups))
	id.mu.Unlock()
	if idle != nil {
		<-idle
	}
	for _, m := range groups {
		err = errors.Join(err, m.Leave())
	}
	if c := id.connection(); c != nil {
		gaveUp := c.CloseContext(ctx)
		id.mu.Lock()
		if id.aborted && errors.Is(gaveUp, context.Canceled) {
			gaveUp = nil // expected after Abort
		}
		id.mu.Unlock()
		err = errors.Join(err, gaveUp)
	}
	if id.route != nil {
		err = errors.Join(err, id.route.Close())
	}
	id.finish()
	id.node.End()
	return opError("Close", id.address, err)
}

// Abort ends the connection and closes the ID at once, without waiting for the peer. Unsent data
// are dropped: on the user-space RNIC the peer receives a TCP reset. Abort also cancels a Connect
// and the wait of a Close in progress. When it returns, the QP's requests have been flushed. It is
// idempotent and may be called on nil.
func (id *ID) Abort() error {
	if id == nil {
		return nil
	}
	id.mu.Lock()
	id.aborted = true
	if id.hurry != nil {
		id.hurry()
	}
	id.mu.Unlock()
	err := id.Close()
	<-id.ended
	return err
}
