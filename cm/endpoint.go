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

// Endpoint is a connection with everything that it needs (rdma_create_ep(3)): PD, CQ, QP, memory
// and receives, of its own or of the caller's. One call dials or accepts it:
//
//	ep, err := cm.Dial(ctx, "host:7306", cm.Config{Device: dev}, cm.EndpointConfig{Memory: 4096})
//	defer ep.Close()
//	sge, err := ep.MR().SGE(0, copy(ep.MR().Bytes(), "hello"))
//	_, err = ep.Do(ctx, verbs.Write(remote, sge))
//	err = ep.Shutdown(ctx)
//
// # Calls
//
// [Endpoint.Do] posts requests and waits until they have completed. [Endpoint.Send] sends a message
// from a buffer of the endpoint, [Endpoint.Recv] takes the next message that has arrived. All
// methods may be called concurrently, and any number of goroutines may be in Do, Send and Recv: one
// of them takes completions from the CQ for all, or the goroutine in the Run of the Dispatcher
// does. An endpoint on which nobody waits costs no goroutine.
//
// If the send queue is full, Do and Send wait for room, in the order of the calls. Nothing is lost,
// and the CQ cannot overflow.
//
// # Credits
//
// If the peer is an Endpoint too, a message waits until the peer has a receive for it: in Send, and
// in Do if the list has a message (a Send of any kind, a Write with immediate, Immediate Data). So
// a peer that reads slowly slows the sender down, as on a TCP connection, and two programs that
// both send and do not read wait for each other until their contexts end. Other requests do not
// wait, and pass messages that do. Without messages the connection carries nothing.
//
// The two sides agree on that while they connect, by [FenceLen] bytes of private data. A message
// does not wait if the peer is another program, if a side has set EndpointConfig.NoCredits, if the
// peer has an SRQ, or if it has posted no receive before the connection. Then the sender must not
// have more messages under way than the peer has receives: on iWARP the next one ends the
// connection, on InfiniBand it is sent again later. Messages that are posted past the endpoint, by
// its QP or Dispatcher, and receives that are, do not count.
//
// # A context that ends a call
//
// If ctx is done while Do or Send waits for room, or for the peer's, nothing has been posted, but
// for the first requests of a list of Do with several messages, if the peer had room for these. If
// it is done later, the requests stay posted: they will still be executed, and their memory belongs
// to the device until they complete. The error then wraps a [*PendingError], whose Wait tells when
// that is; after Close it is too. The buffers of Send need no such care: the endpoint uses one
// again only when its request has completed. A Recv that ends takes no message.
//
// # The end
//
// When the connection ends, Recv first returns the messages that have arrived. Then it, Do and Send
// return an error that has the reason, as [ID.Err] does: it Is io.EOF if the peer disconnected, and
// verbs.ErrClosed after Shutdown or Close.
//
// [Endpoint.Shutdown] ends the connection when the peer has everything that was sent.
// [Endpoint.Close] ends it at once, and closes what the endpoint has made. It does not close what
// the caller has given.
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
	undo  []func() error // closes what else the endpoint has made, the last first
	shut  atomic.Bool    // Shutdown has been called
	dirty atomic.Bool    // a message or Write has completed after the last Read or atomic that has

	private []byte // the peer's private data
	words   words
	credit  credits
	dialled bool // not accepted

	out  atomic.Int64  // requests whose completions have not been dispatched
	idle chan struct{} // holds a token when out has become 0

	// holds a token while a goroutine waits for the peer's room for a message, or posts one; taken
	// before sendTurn
	messageTurn chan struct{}
	// holds a token while a goroutine waits for room in the send queue, or posts; guards the next
	// two
	sendTurn chan struct{}
	// what Shutdown has done: everything has arrived; and the peer knows (endpoint_both.go)
	confirmed, hasTold bool

	room     chan struct{} // holds a token for each free place of the send queue
	recvTurn chan struct{} // holds a token while a goroutine is in Recv
	arrived  chan struct{} // holds a token for each entry of arrivals

	sendBufs buffers
	recvBufs buffers
	inbox    func(*verbs.WC) // of receives with memory of the endpoint
	outbox   func(*verbs.WC) // of receives with memory of the caller

	mu       sync.Mutex // guards what follows
	calls    []*call    // that are not in use
	arrivals queue.Ring[arrival]
	recvs    int  // posted
	ended    bool // the connection has ended
}

// EndpointConfig describes an [Endpoint]. The zero value has a PD, a CQ and a QP of its own, and
// buffers for 16 messages of 4,096 bytes in each direction, but no memory for the peer.
type EndpointConfig struct {
	// Param has private data and depths. The peer of a dialled endpoint gets the private data with
	// the request, that of an accepted one with the acceptance.
	Param ConnParam

	// PD, Dispatcher, QP and MR are the caller's, of the context of the connection (nil = the
	// endpoint makes its own). They must stay open until Close has returned. Dispatcher serves the
	// CQ of both queues; endpoints may share one, if its CQ has room for the queues of all
	// (otherwise the error Is verbs.ErrLimit). A QP has to be in RESET or INIT; it needs a
	// Dispatcher, and its own PD is the one that is used.
	PD         *verbs.PD
	Dispatcher *verbs.Dispatcher
	QP         *verbs.QP
	MR         *verbs.MR
	// SRQ is the shared receive queue of an own QP (nil = none). With one, also with that of a QP
	// of the caller, the program posts receives to it by Dispatcher.PostSRQRecv, whose functions
	// get the messages, and Recv is not used.
	SRQ *verbs.SRQ
	// Cap and SendOps have the sizes of an own QP, and operations that it must have; see
	// verbs.QPConfig. A MaxRecvWR of 0 means what Messages needs.
	Cap     verbs.QPCap
	SendOps verbs.OpSet

	// Memory is the size in bytes of the region that Endpoint.MR returns (0 = none), if MR is nil.
	// Access has its rights; AccessLocalWrite is added. The peer needs its verbs.Remote.
	Memory int
	Access verbs.AccessFlags
	// Offer tells the peer about the memory: the private data begin with its verbs.Remote, which
	// takes verbs.RemoteLen bytes, for verbs.ParseRemote. Those of Param follow.
	Offer bool

	// MessageSize is the largest message of Send and Recv in bytes (0 = DefaultMessageSize).
	// Messages is the number of messages that Recv has buffers for, and of those that can be in
	// Send at a time (0 = DefaultMessages, None = no buffers: then there is no Send, and receives
	// are posted by PostRecv). If the peer has more to send before Recv takes some, it waits; see
	// Endpoint.
	MessageSize, Messages int

	// ShutdownBoth is set on both sides if both will end the connection by Endpoint.Shutdown: each
	// then waits for the other, and when it returns nil, what both have sent has arrived. It is
	// agreed upon by FenceLen bytes at the end of the private data. If the peer is another program,
	// or has not set it, the error of this side Is verbs.ErrNotSupported; a request is rejected.
	ShutdownBoth bool

	// NoCredits leaves the offer of credits out, with its FenceLen bytes of private data: for a
	// peer that is another program and refuses them, or if the program needs the room. Messages
	// then do not wait, in either direction.
	NoCredits bool

	// Prepare is called when everything has been made and receives can be posted, before the
	// endpoint connects (nil = nothing). It can post receives with memory of the caller's
	// (Endpoint.PostRecv) and change p, for example set private data that depend on what has been
	// made. An error ends the attempt.
	Prepare func(ep *Endpoint, p *ConnParam) error
}

const (
	// DefaultMessageSize is that of EndpointConfig, in bytes.
	DefaultMessageSize = 4096
	// DefaultMessages is that of EndpointConfig.
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
// left open, and the request has been answered: if objects of the endpoint could not be made, or
// Prepare has returned an error, it is rejected.
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

// AcceptEndpoint waits for the next request and accepts it: Accept and [Request.AcceptEndpoint] in
// one. The error of a peer that fails during the set-up does not concern the listener; only the
// errors of Accept do, when ctx is done or the listener is closed. A server of many peers calls
// Accept in a loop, and Request.AcceptEndpoint in a goroutine for each.
func (l *Listener) AcceptEndpoint(ctx context.Context, cfg EndpointConfig) (*Endpoint, error) {
	r, err := l.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return r.AcceptEndpoint(ctx, cfg)
}

// makeEndpoint makes everything but the connection, with an offer of credits or without. It changes
// cfg to what has been made.
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

// fill sets defaults and checks what belongs together. It returns the depths of the two queues that
// the endpoint uses.
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

// ID returns the connection, for its addresses, depths and private data, and its end.
func (e *Endpoint) ID() *ID { return e.id }

// Context returns the verbs context of the connection.
func (e *Endpoint) Context() *verbs.Context { return e.pd.Context() }

// PD returns the protection domain, in which memory for requests must be registered.
func (e *Endpoint) PD() *verbs.PD { return e.pd }

// QP returns the queue pair. Post to it through the Dispatcher, with a function for the
// completions. The endpoint knows nothing of a request that is posted by the QP's own PostSend or
// PostRecv: Do does not count it when it waits for room, and when it completes, a call in progress
// gets an error that Is verbs.ErrInvalid, unless the Dispatcher is the caller's and has an Other.
// Close ignores its completion.
func (e *Endpoint) QP() *verbs.QP { return e.qp }

// Dispatcher returns the dispatcher of the CQ. A goroutine may call its Run, so that messages are
// taken from the CQ while nobody waits.
func (e *Endpoint) Dispatcher() *verbs.Dispatcher { return e.d }

// MR returns the memory of the endpoint, nil if it has none.
func (e *Endpoint) MR() *verbs.MR { return e.mr }

// PrivateData returns the private data of the peer, as [ID.PrivateData] does, but without those of
// the peer's Endpoint ([FenceLen]).
func (e *Endpoint) PrivateData() []byte { return e.private }

func (e *Endpoint) opError(op string, err error) error {
	if e.id == nil {
		return opError(op, "", err)
	}
	return opError(op, e.id.address, err)
}

// Close ends the connection, waits until no memory is in use any more, and closes what the endpoint
// has made, in the right order. Calls in progress end with an error. Messages that have arrived are
// lost, and so may be those that were sent ([Endpoint.Shutdown] waits for them). Close waits for a
// peer that does not react as [ID.Close] does. It is idempotent and may be called on nil. In a
// function of the dispatcher, which would wait for itself, it does nothing but return an error that
// Is verbs.ErrInvalid.
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
	} else if e.out.Load() > 0 { // receives that were posted before the attempt to connect
		ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
		err = e.qp.Drain(ctx)
		cancel()
	}
	// What was posted has been flushed into the CQ. Its completions let the calls in progress end.
	// What these may have posted in the meantime is flushed too.
	if err == nil {
		err = e.settle(settleLimit)
	}
	if e.ownQP { // from here on what has not completed will not
		err = errors.Join(err, e.qp.Close())
	}
	err = errors.Join(err, e.settle(time.Second))
	if e.ownCQ { // the last resort for calls in progress
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
	settleLimit = 10 * time.Second // bounds the wait for completions of a QP that has been drained
	settlePause = 20 * time.Millisecond
)

// settle waits until the completions of all requests have been dispatched. The QP is in the error
// state, or closed. A post that is refused meanwhile wakes nobody, so settle looks again after a
// while. It passes over completions of requests that were posted past the dispatcher.
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

// finished notes that the completion of a request has been dispatched, or that it was not posted.
func (e *Endpoint) finished(n int) {
	if e.out.Add(int64(-n)) == 0 {
		queue.Signal(e.idle)
	}
}

// end is called when the connection has ended and everything has been flushed. If there is no
// receive that would have told Recv, one is posted for that: it is flushed at once.
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

// reason is why a request that completed with a status has failed.
func (e *Endpoint) reason(status verbs.WCStatus) error {
	if e.id == nil {
		return status
	}
	if cause := e.id.Err(); cause != nil && cause != error(status) {
		return fmt.Errorf("%w: %w", status, cause)
	}
	return status
}
