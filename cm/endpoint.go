// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/internal/lifetime"
	"github.com/goverbs/goverbs/internal/queue"
	"github.com/goverbs/goverbs/verbs"
)

// Endpoint is a connection together with the objects it uses (rdma_create_ep(3)): PD, CQ, QP,
// memory and receives. Each is created by the endpoint unless the caller supplies it. One call
// dials or accepts an endpoint:
//
//	ep, err := cm.Dial(ctx, "host:7306", cm.Config{Device: dev}, cm.EndpointConfig{Memory: 4096})
//	defer ep.Close()
//	sge, err := ep.MR().SGE(0, copy(ep.MR().Bytes(), "hello"))
//	_, err = ep.Do(ctx, verbs.Write(remote, sge))
//	err = ep.Shutdown(ctx)
//
// # Calls
//
// [Endpoint.Do] posts requests and waits for their completion. [Endpoint.Send] sends a message from
// a buffer of the endpoint, and [Endpoint.Recv] returns the next message. All methods may be called
// concurrently, and any number of goroutines may be in Do, Send and Recv: one of them polls the CQ
// for all, unless a goroutine is in the Dispatcher's Run, which then polls. An endpoint that no
// goroutine is waiting on costs no goroutine.
//
// If the send queue is full, Do and Send wait for room, in the order of the calls. No request is
// dropped, and the CQ cannot overflow.
//
// # Credits
//
// If the peer is also an Endpoint, messages are flow controlled: a message waits until the peer has
// posted a receive for it. The wait is in Send, or in Do if the list contains a message (a Send of
// any kind, a Write with immediate, Immediate Data). A peer that reads slowly therefore slows the
// sender down, as on a TCP connection, and two programs that both send without reading wait for
// each other until their contexts are done. Other requests do not wait, and overtake messages that
// do. Flow control sends nothing on a connection that carries no messages.
//
// The two sides agree on credits during connection setup, in [FenceLen] bytes of private data.
// Messages do not wait if the peer is another program, if either side sets
// EndpointConfig.NoCredits, if the peer has an SRQ, or if it posted no receive before the
// connection was made. The sender must then not have more messages in flight than the peer has
// receives: on iWARP the excess message ends the connection, on InfiniBand it is retransmitted
// later. Messages and receives that bypass the endpoint, posted through its QP or Dispatcher, are
// not counted.
//
// # Cancellation
//
// If ctx is done while Do or Send waits for room in the send queue or for a receive of the peer,
// nothing has been posted. The exception is a list of Do with several messages: its first requests
// may have been posted, as far as the peer had receives for them. If ctx is done later, the
// requests stay posted: they will still be executed, and their memory belongs to the device until
// they complete. The error then wraps a [*PendingError], whose Wait returns when they have
// completed; after Close of the endpoint they have. The buffers of Send need no such care, because
// the endpoint reuses one only after its request completes. A canceled Recv consumes no message.
//
// # Closing
//
// When the connection ends, Recv first returns the messages that have already arrived. After that,
// Recv, Do and Send return an error with the reason, as [ID.Err] does: it Is io.EOF if the peer
// disconnected, and verbs.ErrClosed after Shutdown or Close.
//
// [Endpoint.Shutdown] disconnects once the peer has everything that was sent. [Endpoint.Close]
// disconnects at once and closes what the endpoint created, but not what the caller supplied.
type Endpoint struct {
	node  lifetime.Node
	shown atomic.Pointer[shownEndpoint]
	id    *ID
	pd    *verbs.PD
	d     *verbs.Dispatcher
	qp    *verbs.QP
	mr    *verbs.MR
	ownQP bool
	ownCQ bool
	undo  []func() error // closes the other objects that the endpoint created; run last to first
	shut  atomic.Bool    // Shutdown was called
	dirty atomic.Bool    // a message or Write completed after the last completed Read or atomic

	private []byte // the peer's private data
	words   words
	credit  credits
	dialled bool // not accepted

	out  atomic.Int64  // requests whose completions have not been dispatched
	idle chan struct{} // holds a token once out drops to 0

	// holds a token while a goroutine waits for credit for a message, or posts one; acquired before
	// sendTurn
	messageTurn chan struct{}
	// holds a token while a goroutine waits for room in the send queue, or posts; guards the next
	// two fields
	sendTurn chan struct{}
	// progress of Shutdown: everything has arrived; the peer has been notified (endpoint_both.go)
	confirmed, hasTold bool

	room     chan struct{} // holds a token for each free slot of the send queue
	recvTurn chan struct{} // holds a token while a goroutine is in Recv
	arrived  chan struct{} // holds a token for each entry of arrivals

	sendBufs buffers
	recvBufs buffers
	inbox    func(*verbs.WC) // for receives into memory of the endpoint
	outbox   func(*verbs.WC) // for receives into memory of the caller

	mu       sync.Mutex // guards the fields below
	calls    []*call    // not in use
	arrivals queue.Ring[arrival]
	recvs    int  // posted receives
	ended    bool // the connection has ended
}

// EndpointConfig configures an [Endpoint]. With the zero value the endpoint creates a PD, a CQ and
// a QP, and buffers for 16 messages of 4,096 bytes in each direction, but no memory for the peer.
type EndpointConfig struct {
	// Param holds private data and depths. The private data of a dialed endpoint are sent with the
	// request, those of an accepted endpoint with the acceptance.
	Param ConnParam

	// PD, Dispatcher, QP and MR are supplied by the caller and must belong to the context of the
	// connection (nil = the endpoint creates its own). They must stay open until Close returns.
	// Dispatcher must serve the CQ of both queues. Endpoints may share a Dispatcher if its CQ has
	// room for all their queues; otherwise the error Is verbs.ErrLimit. A QP must be in RESET or
	// INIT. It requires a Dispatcher, and the endpoint uses the PD of the QP.
	PD         *verbs.PD
	Dispatcher *verbs.Dispatcher
	QP         *verbs.QP
	MR         *verbs.MR
	// SRQ is the shared receive queue of a QP that the endpoint creates (nil = none). If the QP has
	// an SRQ, whoever created the QP, the program posts receives with Dispatcher.PostSRQRecv, whose
	// functions receive the messages, and Recv is not used.
	SRQ *verbs.SRQ
	// Cap and SendOps are the queue sizes of a QP that the endpoint creates, and the operations
	// that it must support; see verbs.QPConfig. If MaxRecvWR is 0, it is set to what Messages
	// needs.
	Cap     verbs.QPCap
	SendOps verbs.OpSet

	// Memory is the size in bytes of the region that Endpoint.MR returns (0 = none), if MR is nil.
	// Access is its access rights; AccessLocalWrite is added. To use the memory, the peer needs its
	// verbs.Remote.
	Memory int
	Access verbs.AccessFlags
	// Offer advertises the memory to the peer: the private data begin with its verbs.Remote, in
	// verbs.RemoteLen bytes, for verbs.ParseRemote. The private data of Param follow.
	Offer bool

	// MessageSize is the largest message of Send and Recv in bytes (0 = DefaultMessageSize).
	// Messages is the number of receive buffers, and of messages that can be in Send at once (0 =
	// DefaultMessages). If Messages is None there are no buffers: Send is not available, and the
	// program posts receives with PostRecv. A peer that has more to send waits until Recv returns
	// messages; see Endpoint.
	MessageSize, Messages int

	// ShutdownBoth must be set on both sides if both will end the connection with
	// Endpoint.Shutdown. Each then waits for the other, and when Shutdown returns nil, everything
	// that either side sent has arrived. It is negotiated in FenceLen bytes at the end of the
	// private data. If the peer is another program, or has not set ShutdownBoth, the error of this
	// side Is verbs.ErrNotSupported; on the accepting side the request is rejected.
	ShutdownBoth bool

	// NoCredits omits the credit offer and its FenceLen bytes of private data. Set it if the peer
	// is another program that refuses these bytes, or if the program needs the space. Messages then
	// do not wait, in either direction.
	NoCredits bool

	// Prepare, if not nil, is called after all objects are created and receives can be posted,
	// before the endpoint connects. It can post receives into memory of the caller
	// (Endpoint.PostRecv) and change p, for example to set private data that depend on the objects.
	// If it returns an error, the attempt fails.
	Prepare func(ep *Endpoint, p *ConnParam) error
}

const (
	// DefaultMessageSize is the default EndpointConfig.MessageSize, in bytes.
	DefaultMessageSize = 4096
	// DefaultMessages is the default EndpointConfig.Messages.
	DefaultMessages = 16
)

// Dial connects to address, "host:port" ([Resolve] and [ID.Connect]). The caller closes the
// endpoint. After an error nothing is left open.
func Dial(ctx context.Context, address string, cfg Config, ecfg EndpointConfig) (*Endpoint, error) {
	ep, err := dial(ctx, address, cfg, ecfg)
	return ep, opError("Dial", address, err)
}

func dial(ctx context.Context, address string, cfg Config, ecfg EndpointConfig) (*Endpoint, error) {
	id, err := Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	e, param, err := makeEndpoint(id.Context(), id.BindQP, &ecfg, !ecfg.NoCredits)
	if err != nil {
		return nil, and(err, id.Close())
	}
	e.id, e.dialled = id, true
	e.show()
	id.whenDone(e.end)
	if err := id.Connect(ctx, e.qp, param); err != nil {
		return nil, and(e.ownPart(err), e.Close())
	}
	if err := e.takeWords(); err != nil {
		return nil, and(err, e.Close())
	}
	return e, nil
}

// AcceptEndpoint accepts the request. The caller closes the endpoint. After an error nothing is
// left open, and the request has been answered: it is rejected if the endpoint's objects could not
// be created or Prepare returned an error.
func (r *Request) AcceptEndpoint(ctx context.Context, cfg EndpointConfig) (*Endpoint, error) {
	const op = "AcceptEndpoint"
	address := r.RemoteAddr().String()
	if cfg.ShutdownBoth {
		if err := offersBoth(r.PrivateData()); err != nil {
			return nil, opError(op, address, and(err, r.Reject(nil)))
		}
	}
	e, param, err := makeEndpoint(r.Context(), r.BindQP, &cfg, !cfg.NoCredits && offersCredits(r.PrivateData()))
	if err != nil {
		return nil, opError(op, address, and(err, r.Reject(nil)))
	}
	if e.id, err = r.Accept(ctx, e.qp, param); err != nil {
		return nil, opError(op, address, and(e.ownPart(err), e.Close()))
	}
	e.show()
	if err := e.takeWords(); err != nil {
		return nil, opError(op, address, and(err, e.Close()))
	}
	e.id.whenDone(e.end)
	return e, nil
}

// AcceptEndpoint waits for the next request and accepts it: [Listener.Accept] followed by
// [Request.AcceptEndpoint]. If a peer fails during setup, the error does not affect the listener.
// Only errors of Accept do, when ctx is done or the listener is closed. A server with many peers
// should call Accept in a loop, and Request.AcceptEndpoint in a goroutine per request.
func (l *Listener) AcceptEndpoint(ctx context.Context, cfg EndpointConfig) (*Endpoint, error) {
	r, err := l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return r.AcceptEndpoint(ctx, cfg)
}

// makeEndpoint creates everything but the connection, and offers credits if asked to. It updates
// cfg to what was created.
func makeEndpoint(vctx *verbs.Context, bind func(*verbs.QP) error, cfg *EndpointConfig,
	credits bool) (*Endpoint, ConnParam, error) {
	e := &Endpoint{idle: make(chan struct{}, 1), messageTurn: make(chan struct{}, 1), sendTurn: make(chan struct{}, 1),
		recvTurn: make(chan struct{}, 1)}
	e.inbox, e.outbox = e.received(true), e.received(false)
	e.node.SetOwner(vctx.Device())
	_ = e.node.Init("cm.Endpoint", e.Close) // it has no parent that could refuse
	param := cfg.Param
	err := e.make(vctx, bind, cfg, &param)
	if err == nil {
		err = e.offerWords(&param, cfg.ShutdownBoth, credits)
	}
	if err != nil {
		return nil, param, and(err, e.Close())
	}
	return e, param, nil
}

// make makes the objects in the order in which they depend on each other.
func (e *Endpoint) make(vctx *verbs.Context, bind func(*verbs.QP) error, cfg *EndpointConfig, param *ConnParam) error {
	sends, recvs, err := cfg.fill(vctx)
	if err != nil {
		return err
	}
	if e.pd = cfg.PD; e.pd == nil {
		if e.pd, err = vctx.AllocPD(); err != nil {
			return err
		}
		e.undo = append(e.undo, e.pd.Close)
	}
	if e.mr = cfg.MR; e.mr == nil && cfg.Memory > 0 {
		if e.mr, err = e.pd.AllocMR(cfg.Memory, cfg.Access|verbs.AccessLocalWrite); err != nil {
			return err
		}
		e.undo = append(e.undo, e.mr.Close)
	}
	if err := e.makeQueues(vctx, cfg, sends, recvs); err != nil {
		return err
	}
	if err := bind(e.qp); err != nil {
		return err
	}
	if err := e.makeBuffers(cfg); err != nil {
		return err
	}
	e.show()
	if cfg.Offer {
		param.PrivateData = append(e.mr.Remote().Append(nil), param.PrivateData...)
	}
	if cfg.Prepare != nil {
		return cfg.Prepare(e, param)
	}
	return nil
}

// fill sets defaults and checks that the fields match each other. It returns the depths of the two
// queues that the endpoint uses.
func (cfg *EndpointConfig) fill(vctx *verbs.Context) (sends, recvs int, err error) {
	if cfg.QP != nil {
		if cfg.Dispatcher == nil || cfg.QP.SendCQ() != cfg.Dispatcher.CQ() || cfg.QP.RecvCQ() != cfg.Dispatcher.CQ() {
			return 0, 0, fmt.Errorf(
				"%w: a QP of the caller needs the Dispatcher of its CQ, which must be that of both queues",
				verbs.ErrInvalid)
		}
		if cfg.PD != nil && cfg.PD != cfg.QP.PD() {
			return 0, 0, fmt.Errorf("%w: PD and QP", verbs.ErrForeign)
		}
		cfg.PD, cfg.SRQ, cfg.Cap = cfg.QP.PD(), cfg.QP.SRQ(), cfg.QP.Cap()
	}
	if cfg.Dispatcher != nil && cfg.Dispatcher.CQ().Context() != vctx {
		return 0, 0, fmt.Errorf("%w: the Dispatcher is of another context than the connection", verbs.ErrForeign)
	}
	if cfg.PD != nil && cfg.PD.Context() != vctx {
		return 0, 0, fmt.Errorf("%w: the PD is of another context than the connection", verbs.ErrForeign)
	}
	if cfg.MR != nil && cfg.MR.PD() != cfg.PD {
		return 0, 0, fmt.Errorf("%w: MR and PD", verbs.ErrForeign)
	}
	if cfg.Offer && cfg.MR == nil && cfg.Memory == 0 {
		return 0, 0, fmt.Errorf("%w: Offer without memory", verbs.ErrInvalid)
	}
	if cfg.MessageSize == 0 {
		cfg.MessageSize = DefaultMessageSize
	}
	if cfg.Messages == 0 {
		cfg.Messages = DefaultMessages
	}
	if cfg.Messages == None {
		cfg.Messages, cfg.MessageSize = 0, 0
	}
	for _, n := range []int{cfg.Messages, cfg.MessageSize, cfg.Memory} {
		if n < 0 {
			return 0, 0, fmt.Errorf("%w: %d messages of %d bytes, memory of %d", verbs.ErrInvalid, cfg.Messages,
				cfg.MessageSize, cfg.Memory)
		}
	}
	attr, err := vctx.QueryDevice()
	if err != nil {
		return 0, 0, err
	}
	if cfg.Cap.MaxSendWR == 0 {
		cfg.Cap.MaxSendWR = min(verbs.DefaultSendWR, attr.MaxQPWR)
	}
	if cfg.SRQ != nil {
		return cfg.Cap.MaxSendWR, 0, nil
	}
	if cfg.Cap.MaxRecvWR == 0 {
		if cfg.Cap.MaxRecvWR = cfg.Messages; cfg.Messages == 0 {
			cfg.Cap.MaxRecvWR = min(verbs.DefaultRecvWR, attr.MaxQPWR)
		}
	}
	if cfg.Messages > cfg.Cap.MaxRecvWR {
		return 0, 0, &verbs.LimitError{Name: "max_recv_wr", Limit: uint64(cfg.Cap.MaxRecvWR),
			Value: uint64(cfg.Messages)}
	}
	return cfg.Cap.MaxSendWR, cfg.Cap.MaxRecvWR, nil
}

// makeQueues makes the CQ with its dispatcher, and the QP.
func (e *Endpoint) makeQueues(vctx *verbs.Context, cfg *EndpointConfig, sends, recvs int) (err error) {
	if e.d = cfg.Dispatcher; e.d == nil {
		cq, err := vctx.CreateCQ(verbs.CQConfig{CQE: sends + recvs})
		if err != nil {
			return err
		}
		if e.d, err = verbs.NewDispatcher(cq, verbs.DispatcherConfig{}); err != nil {
			return errors.Join(err, cq.Close())
		}
		e.ownCQ = true
	}
	if err := e.d.Reserve(sends + recvs); err != nil {
		return err
	}
	e.undo = append(e.undo, func() error { e.d.Release(sends + recvs); return nil })
	if e.qp = cfg.QP; e.qp == nil {
		c := verbs.QPConfig{SendCQ: e.d.CQ(), RecvCQ: e.d.CQ(), SRQ: cfg.SRQ, Cap: cfg.Cap, SendOps: cfg.SendOps}
		if e.qp, err = e.pd.CreateQP(c); err != nil {
			return err
		}
		e.ownQP = true
	}
	e.room = make(chan struct{}, sends)
	for range sends {
		e.room <- struct{}{}
	}
	e.arrivals = queue.Grown[arrival](recvs)
	e.arrived = make(chan struct{}, recvs)
	return nil
}

// ID returns the connection, which has the addresses, the depths and the reason for the end.
func (e *Endpoint) ID() *ID { return e.id }

// Context returns the verbs context of the connection.
func (e *Endpoint) Context() *verbs.Context { return e.pd.Context() }

// PD returns the protection domain, in which memory for requests must be registered.
func (e *Endpoint) PD() *verbs.PD { return e.pd }

// QP returns the queue pair. Post to it through the Dispatcher, with a function for the
// completions. The endpoint is unaware of requests posted by the QP's own PostSend or PostRecv: Do
// does not count them when it waits for room. When such a request completes, a pending call returns
// an error that Is verbs.ErrInvalid, unless the Dispatcher is the caller's and has an Other. Close
// ignores the completion.
func (e *Endpoint) QP() *verbs.QP { return e.qp }

// Dispatcher returns the dispatcher of the CQ. A goroutine may call its Run, so that the CQ is
// polled while no call is waiting.
func (e *Endpoint) Dispatcher() *verbs.Dispatcher { return e.d }

// MR returns the memory of the endpoint, nil if it has none.
func (e *Endpoint) MR() *verbs.MR { return e.mr }

// PrivateData returns the private data of the peer, as [ID.PrivateData] does, but without the
// [FenceLen] bytes that the peer's Endpoint appended.
func (e *Endpoint) PrivateData() []byte { return e.private }

func (e *Endpoint) opError(op string, err error) error {
	if e.id == nil {
		return opError(op, "", err)
	}
	return opError(op, e.id.address, err)
}

// Close disconnects, waits until no memory is in use, and closes what the endpoint created, in the
// right order. Pending calls return an error. Messages that have arrived are lost, and messages
// that were sent may be ([Endpoint.Shutdown] waits for them). Close waits for an unresponsive peer
// as [ID.Close] does. It is idempotent and may be called on nil. Called from a function of the
// dispatcher it would wait for itself; it then only returns an error that Is verbs.ErrInvalid.
func (e *Endpoint) Close() error {
	if e == nil {
		return nil
	}
	if e.d != nil && e.d.Inside() {
		return e.opError("Close",
			fmt.Errorf("%w: a function of the dispatcher must not wait, as Close does", verbs.ErrInvalid))
	}
	if first, _ := e.node.BeginClose(); !first { // it has no children
		return nil
	}
	var err error
	if e.id != nil && e.id.connection() != nil {
		err = e.id.Disconnect()
	} else if e.out.Load() > 0 { // receives posted before the attempt to connect
		ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
		err = e.qp.Drain(ctx)
		cancel()
	}
	// Everything posted has been flushed into the CQ, and these completions let pending calls
	// return. Anything those calls posted in the meantime is flushed too.
	if err == nil {
		err = e.settle(settleLimit)
	}
	if e.ownQP { // what has not completed by here never will
		err = errors.Join(err, e.qp.Close())
	}
	err = errors.Join(err, e.settle(time.Second))
	if e.ownCQ { // the last resort for pending calls
		err = errors.Join(err, e.d.CQ().Close())
	}
	e.node.Drain(0)
	if !e.ownCQ {
		err = errors.Join(err, e.settle(settleLimit))
	}
	err = errors.Join(err, e.id.Close())
	for _, undo := range slices.Backward(e.undo) {
		err = errors.Join(err, undo())
	}
	e.node.End()
	return e.opError("Close", err)
}

const (
	settleLimit = 10 * time.Second // bounds the wait for completions of a drained QP
	settlePause = 20 * time.Millisecond
)

// settle waits until the completions of all requests have been dispatched. The QP is in the error
// state, or closed. A post that is refused meanwhile wakes no goroutine, so settle polls. It
// ignores completions of requests that bypassed the dispatcher.
func (e *Endpoint) settle(limit time.Duration) error {
	for end := time.Now().Add(limit); e.out.Load() > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), settlePause)
		err := e.wait(ctx, e.idle)
		goOn := ctx.Err() != nil || errors.Is(err, verbs.ErrInvalid)
		cancel()
		if err != nil && (!goOn || time.Now().After(end)) {
			return fmt.Errorf("%d requests have not completed: %w", e.out.Load(), err)
		}
	}
	return nil
}

// wait is the dispatcher's Wait, without its name in the error of a context.
func (e *Endpoint) wait(ctx context.Context, ready <-chan struct{}) error {
	err := e.d.Wait(ctx, ready)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// finished records that n requests were dispatched, or not posted after all.
func (e *Endpoint) finished(n int) {
	if e.out.Add(int64(-n)) == 0 {
		queue.Signal(e.idle)
	}
}

// end is called when the connection has ended and everything is flushed. If no receive is left to
// wake Recv, end posts one, which is flushed at once.
func (e *Endpoint) end() {
	if !e.node.Enter() {
		return
	}
	defer e.node.Exit()
	e.mu.Lock()
	e.ended = true
	none := e.recvs == 0 && e.arrivals.Len() == 0 && e.qp.SRQ() == nil
	e.mu.Unlock()
	if none {
		_ = e.PostRecv(verbs.RecvWR{}) // it fails only when the QP is closed
	}
}

// reason returns why a request failed: its status, with the reason for the end of the connection.
func (e *Endpoint) reason(status verbs.WCStatus) error {
	if e.id == nil {
		return status
	}
	if cause := e.id.Err(); cause != nil && cause != error(status) {
		return fmt.Errorf("%w: %w", status, cause)
	}
	return status
}
