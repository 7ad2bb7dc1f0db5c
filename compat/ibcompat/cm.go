// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// PrivateData is the number of bytes of private data of a connection: at most so many are taken, and so many are delivered, of
// which those that the peer did not send are 0. It is what every fabric has room for. Datagrams are not connections: of them
// the private data are as on the inner device.
const PrivateData = 48

func checkPrivate(data []byte) error {
	if len(data) > PrivateData {
		return &verbs.LimitError{Name: "private data", Limit: PrivateData, Value: uint64(len(data))}
	}
	return nil
}

// delivered is what the program gets of private data that have arrived.
func delivered(data []byte) []byte {
	b := make([]byte, PrivateData)
	copy(b, data)
	return b
}

// deliveredReject does the same for those of a refusal.
func deliveredReject(err error) error {
	var rejected *cm.RejectedError
	if !errors.As(err, &rejected) {
		return err
	}
	cut := *rejected
	cut.PrivateData = delivered(cut.PrivateData)
	return &cut
}

// below is the same for the inner context.
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
	datagram := cfg.PortSpace == cm.PortSpaceUDP
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	id, err := cm.Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &route{ID: id, datagram: datagram}, nil
}

// route is a way to a peer (cm.Route, cm.ProviderMulticaster).
type route struct {
	*cm.ID
	datagram bool
}

func (r *route) Bind(handle *verbs.QP) error {
	q, err := own(handle)
	if err != nil {
		return err
	}
	return r.BindQP(q.in)
}

func (r *route) Connect(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := own(handle)
	if err != nil {
		return nil, err
	}
	if r.datagram {
		if err := r.ID.Connect(ctx, q.in, param); err != nil {
			return nil, err
		}
		return &datagram{r.ID}, nil
	}
	if err := checkPrivate(param.PrivateData); err != nil {
		return nil, err
	}
	if err := r.ID.Connect(ctx, q.in, param); err != nil {
		return nil, deliveredReject(err)
	}
	return newConn(r.ID, q), nil
}

func (r *route) JoinMulticast(ctx context.Context, handle *verbs.QP, group netip.Addr) (cm.Datagram, func() error, error) {
	return joinMulticast(ctx, r.ID, handle, group)
}

func joinMulticast(ctx context.Context, id *cm.ID, handle *verbs.QP, group netip.Addr) (cm.Datagram, func() error, error) {
	q, err := own(handle)
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	m, err := id.JoinMulticast(ctx, q.in, group)
	if err != nil {
		return cm.Datagram{}, nil, err
	}
	return m.Datagram, m.Leave, nil
}

// datagram is the connection of a UD QP (cm.ProviderConn, cm.ProviderDatagram, cm.ProviderMulticaster).
type datagram struct{ *cm.ID }

func (d *datagram) JoinMulticast(ctx context.Context, handle *verbs.QP, group netip.Addr) (cm.Datagram, func() error, error) {
	return joinMulticast(ctx, d.ID, handle, group)
}

// conn is a connection (cm.ProviderConn).
type conn struct {
	*cm.ID
	q       *qp
	private []byte
	done    chan struct{}
}

func newConn(id *cm.ID, q *qp) *conn {
	c := &conn{ID: id, q: q, private: delivered(id.PrivateData()), done: make(chan struct{})}
	go func() {
		<-id.Done()
		q.flush()
		close(c.done)
	}()
	return c
}

func (c *conn) PrivateData() []byte   { return c.private }
func (c *conn) Done() <-chan struct{} { return c.done }

// Disconnect also flushes what is being composed.
func (c *conn) Disconnect() error {
	err := c.ID.Disconnect()
	c.q.flush()
	return err
}

// CloseContext ends the connection. When it returns, the QP's completions are in the CQs.
func (c *conn) CloseContext(ctx context.Context) error {
	err := c.ID.CloseContext(ctx)
	<-c.done
	return err
}

// Listen implements cm.Provider.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	datagram := cfg.PortSpace == cm.PortSpaceUDP
	cfg, err := below(cfg)
	if err != nil {
		return nil, err
	}
	ln, err := cm.Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	return &listener{ln, datagram}, nil
}

// listener is cm.ProviderListener.
type listener struct {
	*cm.Listener
	datagram bool
}

func (l *listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	r, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	private := r.PrivateData()
	if !l.datagram {
		private = delivered(private)
	}
	return &request{r, l.datagram, private}, nil
}

// request is cm.ProviderRequest.
type request struct {
	*cm.Request
	datagram bool
	private  []byte
}

func (r *request) PrivateData() []byte { return r.private }

func (r *request) Bind(handle *verbs.QP) error {
	q, err := own(handle)
	if err != nil {
		return err
	}
	return r.BindQP(q.in)
}

func (r *request) Accept(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := own(handle)
	if err != nil {
		return nil, err
	}
	if !r.datagram {
		if err := checkPrivate(param.PrivateData); err != nil {
			return nil, r.end(err)
		}
	}
	id, err := r.Request.Accept(ctx, q.in, param)
	if err != nil {
		return nil, err
	}
	if r.datagram {
		return &datagram{id}, nil
	}
	c := newConn(id, q)
	c.private = r.private
	return c, nil
}

func (r *request) Reject(data []byte) error {
	if !r.datagram {
		if err := checkPrivate(data); err != nil {
			return r.end(err)
		}
	}
	return r.Request.Reject(data)
}

// end refuses the request, which gets no other answer, and returns the reason.
func (r *request) end(reason error) error {
	_ = r.Request.Reject(nil) // the peer may have given up
	return reason
}
