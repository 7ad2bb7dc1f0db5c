// SPDX-License-Identifier: BSD-3-Clause

package engine

import (
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/refusal"
	"github.com/goverbs/goverbs/verbs"
)

func greeting(private []byte) []byte { return (&wire.Greeting{Private: private}).Append(nil) }

// below returns the configuration for the inner context.
func below(cfg cm.Config) (cm.Config, error) {
	own, err := verbs.Own[*vcontext](cfg.Context.Provider())
	if err != nil {
		return cm.Config{}, err
	}
	cfg.Device, cfg.Context = nil, own.in
	return cfg, nil
}

func own(handle *verbs.QP) (*qp, error) { return verbs.Own[*qp](handle.Provider()) }

// Resolve implements cm.Provider.
func (d *device) Resolve(ctx context.Context, address string, cfg cm.Config) (cm.Route, error) {
	if cfg.PortSpace == cm.PortSpaceUDP {
		return nil, verbs.ErrNotSupported
	}
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &route{id}, nil
}

// route is a route to a peer (cm.Route).
type route struct{ id *cm.ID }

func (r *route) RemoteAddr() net.Addr { return r.id.RemoteAddr() }
func (r *route) PortNum() int         { return r.id.PortNum() }
func (r *route) Close() error         { return r.id.Close() }

func (r *route) Bind(handle *verbs.QP) error {
	q, err := own(handle)
	if err != nil {
		return err
	}
	return q.bind(r.id.BindQP)
}

func (r *route) Connect(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := own(handle)
	if err != nil {
		return nil, err
	}
	if err := CheckPrivate(param.PrivateData); err != nil {
		return nil, err
	}
	in, err := q.prepare(param)
	if err != nil {
		return nil, err
	}
	param.PrivateData = greeting(param.PrivateData)
	if err := r.id.Connect(ctx, in, param); err != nil {
		q.unmanaged(err)
		return nil, refused(err)
	}
	g, err := wire.ParseGreeting(r.id.PrivateData())
	if err == nil && g.Flags&wire.FlagHand != 0 {
		err = errByHand
	}
	if err != nil {
		q.unmanaged(err)
		_ = r.id.Disconnect() // the peer accepted something else
		return nil, &PeerError{Reason: err}
	}
	return newConn(q, r.id, g.Private, true), nil
}

// refused translates the error of a Connect that was rejected: by the peer's program, by its
// engine, or by something that is not an engine.
func refused(err error) error {
	var rejected *cm.RejectedError
	if !errors.As(err, &rejected) {
		return err
	}
	cut := *rejected
	g, bad := wire.ParseGreeting(cut.PrivateData)
	switch {
	case bad == nil && g.Flags&wire.FlagEngine != 0:
		cut.PrivateData = Delivered(nil)
		return &PeerError{Reason: &cut, Remote: true}
	case bad == nil:
		cut.PrivateData = Delivered(g.Private)
		return &cut
	case len(cut.PrivateData) == 0:
		cut.PrivateData = Delivered(nil) // nothing received the request
		return &cut
	}
	cut.PrivateData = Delivered(cut.PrivateData)
	return &PeerError{Reason: errors.Join(bad, &cut)}
}

// prepare records the program's connection parameters and returns the inner QP.
func (q *qp) prepare(param cm.ConnParam) (*verbs.QP, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if param.MinRNRTimer > 31 {
		return nil, &verbs.LimitError{Name: "MinRNRTimer", Limit: 31, Value: uint64(param.MinRNRTimer)}
	}
	if param.RNRRetryCount > 7 {
		return nil, &verbs.LimitError{Name: "RNRRetryCount", Limit: 7, Value: uint64(param.RNRRetryCount)}
	}
	if param.RNRRetryCount < cm.None {
		return nil, invalid("RNRRetryCount %d", param.RNRRetryCount)
	}
	if q.state != verbs.QPStateInit {
		return nil, &verbs.StateError{State: q.state, Why: "a connection needs a QP in INIT"}
	}
	q.param = param
	q.param.PrivateData = nil
	q.managed = true
	return q.in, nil
}

// unmanaged records that the connection manager failed to connect the QP. If that broke the inner
// QP, as with the kernel's siw, the QP is in ERR at once rather than when its receives are flushed.
func (q *qp) unmanaged(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.managed = false
	if q.in.State() == verbs.QPStateErr {
		q.broken(why)
		q.advance()
	}
}

// errByHand reports that the peer is a QP brought up manually, which waits for another QP.
var errByHand = errors.New("ibcompat: the peer's QP was brought up by hand")

// conn is a connection (cm.ProviderConn).
type conn struct {
	q       *qp
	id      *cm.ID
	private []byte
	done    chan struct{}
}

func newConn(q *qp, id *cm.ID, private []byte, active bool) *conn {
	c := &conn{q: q, id: id, private: Delivered(private), done: make(chan struct{})}
	q.established(id, active)
	go func() {
		if flushed := q.watch(id); flushed != nil {
			<-flushed
		}
		close(c.done)
	}()
	return c
}

// watch waits until the inner connection ends. It returns a channel that is closed once the
// requests are flushed, or nil if the QP is not in ERR.
func (q *qp) watch(id *cm.ID) <-chan struct{} {
	<-id.Done()
	q.pump.work() // completions that arrived before
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.id == id { // otherwise the QP was reset
		if errors.Is(q.cause, verbs.WCWRFlushErr) { // the device reported no other reason
			q.cause = endOf(id.Err())
		}
		if q.gone() && errors.Is(q.hand.gone, verbs.WCWRFlushErr) {
			q.hand.gone = endOf(id.Err())
		}
		q.broken(id.Err())
		q.advance()
	}
	return q.flushed
}

func (c *conn) LocalAddr() net.Addr        { return c.id.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr       { return c.id.RemoteAddr() }
func (c *conn) PrivateData() []byte        { return c.private }
func (c *conn) Depths() (ord, ird int)     { return c.id.Depths() }
func (c *conn) PeerDepths() (ord, ird int) { return c.id.PeerDepths() }
func (c *conn) Done() <-chan struct{}      { return c.done }

// Err returns why the QP failed, unless it has been reset since.
func (c *conn) Err() error {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	if c.q.id == c.id {
		return c.q.cause
	}
	return c.id.Err()
}

// leave closes the connection and returns a channel that is closed once the requests are flushed.
func (c *conn) leave(hurry bool) <-chan struct{} {
	q := c.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.id != c.id {
		return c.done
	}
	q.fail(verbs.EndDisconnect)
	if hurry {
		q.rush()
	}
	return q.flushed
}

// Disconnect closes the connection. When it returns, all completions are in the CQs.
func (c *conn) Disconnect() error {
	<-c.leave(false)
	return nil
}

// CloseContext also waits until the inner connection is closed.
func (c *conn) CloseContext(ctx context.Context) error {
	if ctx.Err() == nil {
		select {
		case <-c.leave(false):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		c.leave(true)
	}
	err := c.id.CloseContext(ctx)
	<-c.done
	return err
}

// Listen implements cm.Provider.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	if cfg.PortSpace == cm.PortSpaceUDP {
		return nil, verbs.ErrNotSupported
	}
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	ln, err := cm.Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &listener{ln}, nil
}

// listener is cm.ProviderListener.
type listener struct{ ln *cm.Listener }

func (l *listener) Addr() net.Addr { return l.ln.Addr() }
func (l *listener) Close() error   { return l.ln.Close() }

// Accept also returns requests of other kinds of peers, so that the program learns of them from the
// error of its Accept.
func (l *listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	r, err := l.ln.Accept(ctx)
	if err != nil {
		return nil, err
	}
	g, err := wire.ParseGreeting(r.PrivateData())
	if err == nil && g.Flags&wire.FlagHand != 0 {
		g.Private, err = nil, errByHand
	}
	return &asking{r, Delivered(g.Private), err}, nil
}

// asking is cm.ProviderRequest.
type asking struct {
	r       *cm.Request
	private []byte
	bad     error // why the peer cannot be accepted; nil for an engine
}

func (r *asking) LocalAddr() net.Addr    { return r.r.LocalAddr() }
func (r *asking) RemoteAddr() net.Addr   { return r.r.RemoteAddr() }
func (r *asking) PrivateData() []byte    { return r.private }
func (r *asking) Depths() (ord, ird int) { return r.r.Depths() }
func (r *asking) PortNum() int           { return r.r.PortNum() }

func (r *asking) Bind(handle *verbs.QP) error {
	q, err := own(handle)
	if err != nil {
		return err
	}
	return q.bind(r.r.BindQP)
}

func (r *asking) Accept(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := own(handle)
	if err != nil {
		return nil, err
	}
	if r.bad != nil {
		return nil, r.end(&PeerError{Reason: r.bad})
	}
	if err := CheckPrivate(param.PrivateData); err != nil {
		return nil, r.end(err)
	}
	in, err := q.prepare(param)
	if err != nil {
		return nil, r.end(err)
	}
	param.PrivateData = greeting(param.PrivateData)
	id, err := r.r.Accept(ctx, in, param)
	if err != nil {
		q.unmanaged(err)
		return nil, err
	}
	return newConn(q, id, r.private, false), nil
}

func (r *asking) Reject(data []byte) error {
	if err := CheckPrivate(data); err != nil {
		return r.end(err)
	}
	if r.bad != nil {
		return r.end(nil)
	}
	return r.r.Reject(greeting(data))
}

// end rejects the request on behalf of the engine and returns the reason.
func (r *asking) end(reason error) error {
	data := (&wire.Greeting{Flags: wire.FlagEngine}).Append(nil)
	if r.bad != nil {
		data = refusal.Data(refusal.NotIB)
	}
	_ = r.r.Reject(data) // the peer may have given up
	return reason
}
