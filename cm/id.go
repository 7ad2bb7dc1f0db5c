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

// ID is a connection, or an attempt to make one (struct rdma_cm_id). All methods may be called
// concurrently.
type ID struct {
	node    lifetime.Node
	vctx    *verbs.Context
	address string
	route   Route                 // of the active side, else nil
	bind    func(*verbs.QP) error // moves a QP from RESET to INIT
	port    int

	ended chan struct{} // closed when Close is over

	done chan struct{} // closed when the connection has ended, or by Close

	mu       sync.Mutex         // guards what follows
	used     bool               // Connect or Accept has been called
	closing  bool               // Close has been called
	aborted  bool               // Abort has been called
	hurry    context.CancelFunc // ends the wait of Close for the peer
	cancel   context.CancelFunc // ends a Connect or Accept in progress
	idle     chan struct{}      // closed when that call has returned
	conn     ProviderConn       // nil before the connection is established
	qp       *verbs.QP
	local    net.Addr // of the connection, nil before
	remote   net.Addr // of the connection, before that of the route
	groups   map[*Multicast]struct{}
	doneOnce sync.Once
	onDone   func() // see whenDone
}

// Resolve finds the device and the route for a connection to address, "host:port"
// (rdma_resolve_addr(3) and rdma_resolve_route(3) in one). The peer is not contacted. The caller
// closes the ID.
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

// newID makes an ID. bind is that of its route, or of the request that it accepts.
func newID(vctx *verbs.Context, address string, remote net.Addr, port int, bind func(*verbs.QP) error) *ID {
	id := &ID{vctx: vctx, address: address, remote: remote, port: port, bind: bind, done: make(chan struct{}),
		ended: make(chan struct{})}
	id.node.SetOwner(vctx.Device())
	_ = id.node.Init("cm.ID", id.Close) // it has no parent that could refuse
	return id
}

// Context returns the verbs context for the objects of the connection.
func (id *ID) Context() *verbs.Context { return id.vctx }

// PortNum returns the port of the device, from 1, over which the connection goes (port_num of
// struct rdma_cm_id).
func (id *ID) PortNum() int { return id.port }

// BindQP moves a QP from RESET to INIT, so that receives can be posted before Connect or Accept, as
// iWARP requires. It does nothing to a QP in the state INIT. Connect and Accept bind a QP that is
// still in RESET.
func (id *ID) BindQP(qp *verbs.QP) error {
	return opError("BindQP", id.address, bindQP(id.vctx, qp, id.bind))
}

// bindQP returns plain causes.
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
// up to RDMA_CM_EVENT_ESTABLISHED). When ctx is done before that, the attempt is given up and the
// error Is ctx.Err(). When the peer refuses, the error wraps a *[RejectedError]. When an event of
// the kernel with an errno is the reason, also of a refusal, the error wraps an *[EventError]. An
// ID connects once.
//
// librdmacm can choose a local port that the TCP of kernel siw finds in use. Connect then tries up
// to seven others, unless Config.Source has a port.
//
// After a Connect that was given up, kernel siw uses the QP until the peer answers, or for 10 s;
// the QP's Close waits for that.
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

// fresh returns an error if the ID is closed or Connect or Accept has been called.
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

// establish makes one attempt, which Close can end.
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

// whenDone has f called when Done is closed, or now if it is. It is called once.
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

// PrivateData returns the private data of the peer: those of its request on the passive side, those
// of its acceptance on the active side. It is nil before the connection is established.
func (id *ID) PrivateData() []byte {
	if c := id.connection(); c != nil {
		return c.PrivateData()
	}
	return nil
}

// Depths returns the agreed numbers of Reads and atomics in progress, as requester (ORD) and as
// responder (IRD); 0 before the connection is established.
func (id *ID) Depths() (ord, ird int) {
	if c := id.connection(); c != nil {
		return c.Depths()
	}
	return 0, 0
}

// PeerDepths returns the numbers of Reads and atomics in progress that the peer sent when the
// connection was made, as requester (its ORD, initiator_depth of struct rdma_conn_param) and as
// responder (its IRD, responder_resources): those of its request on the passive side, those of its
// acceptance on the active side (RFC 6581 section 9.1). They are -1 if the peer sent none, and
// before the connection is established. 16,383 of an iWARP peer means that it does not negotiate.
// On devices of the kernel they are the numbers that its connection manager reports; RNICs other
// than siw may have adapted them to those of this side.
func (id *ID) PeerDepths() (ord, ird int) {
	if c := id.connection(); c != nil {
		return c.PeerDepths()
	}
	return -1, -1
}

// Disconnect ends the connection (rdma_disconnect(3)): the QP goes into the error state, its
// requests are flushed, and the peer is notified. When Disconnect returns, the completions of the
// QP are in the CQs. The comment of the package says on which devices the peer gets everything that
// has completed.
func (id *ID) Disconnect() error {
	if c := id.connection(); c != nil {
		return opError("Disconnect", id.address, c.Disconnect())
	}
	return opError("Disconnect", id.address, fmt.Errorf("%w: not connected", verbs.ErrInvalid))
}

// Done returns a channel that is closed when the connection has ended, by either side or by a
// failure, and the QP's requests have been flushed. Close closes it too.
//
// On InfiniBand and RoCE the failure of one of the QP's own requests is noticed only when its
// completion is polled. A program that waits for Done must therefore also poll.
func (id *ID) Done() <-chan struct{} { return id.done }

// Err returns the reason for the end of the connection, nil before. It Is io.EOF if the peer
// disconnected, verbs.ErrClosed after a local disconnect, or wraps a *verbs.TerminateError. It is
// not nil once a flushed request has been polled, even if Done is not closed yet.
func (id *ID) Err() error {
	if c := id.connection(); c != nil {
		return c.Err()
	}
	return nil
}

// Close disconnects, ends a Connect in progress, and returns when the connection has ended
// completely. It waits for a peer that does not react at most for the close time-out of the device,
// 3 s by default; [ID.CloseContext] waits less. The QP still belongs to the caller. Close is
// idempotent and may be called on nil.
func (id *ID) Close() error { return id.CloseContext(context.Background()) }

// CloseContext is Close with a limit of the caller's: when ctx is done, it does not wait for the
// peer any more, and the error Is ctx.Err(). The ID is closed in any case. What was sent before may
// then not arrive, and the peer may see a failure.
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
			gaveUp = nil // that is what Abort asks for
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

// Abort ends the connection at once, closes the ID, and waits for no peer. Data that have not been
// sent yet are dropped: on the user-space RNIC the peer gets a reset of TCP. It also ends the wait
// of a Close in progress, and a Connect. When it returns, the requests of the QP have been flushed.
// It is idempotent and may be called on nil.
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
