// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/engine"
	"github.com/goverbs/goverbs/compat/ibcompat/internal/wire"
	"github.com/goverbs/goverbs/internal/forward"
	"github.com/goverbs/goverbs/verbs"
)

// PrivateData is the length of a connection's private data in bytes, 48, for which every fabric has
// room. A program may send at most this many, and gets exactly this many, padded with zeros.
// Private data of datagram endpoints are those of the inner device.
const PrivateData = wire.MaxPrivate

// deliveredReject adapts the private data of a rejection to what the program expects.
func deliveredReject(err error) error {
	var rejected *cm.RejectedError
	if !errors.As(err, &rejected) {
		return err
	}
	cut := *rejected
	cut.PrivateData = engine.Delivered(cut.PrivateData)
	return &cut
}

// Resolve implements cm.Provider. Datagrams are left to the inner device.
func (d *device) Resolve(ctx context.Context, address string, cfg cm.Config) (cm.Route, error) {
	r, err := forward.Resolve(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.PortSpace == cm.PortSpaceUDP {
		return r, nil
	}
	return &route{r}, nil
}

// route is a route to a peer (cm.Route).
type route struct{ *forward.Route }

func (r *route) Connect(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := verbs.Own[*qp](handle.Provider())
	if err != nil {
		return nil, err
	}
	if err := engine.CheckPrivate(param.PrivateData); err != nil {
		return nil, err
	}
	if _, err := r.Route.Connect(ctx, handle, param); err != nil {
		return nil, deliveredReject(err)
	}
	return newConn(r.ID, q, engine.Delivered(r.PrivateData())), nil
}

// conn is a connection (cm.ProviderConn).
type conn struct {
	*cm.ID
	q       *qp
	private []byte
	done    chan struct{}
}

func newConn(id *cm.ID, q *qp, private []byte) *conn {
	c := &conn{ID: id, q: q, private: private, done: make(chan struct{})}
	go func() {
		<-id.Done()
		q.flush()
		close(c.done)
	}()
	return c
}

func (c *conn) PrivateData() []byte   { return c.private }
func (c *conn) Done() <-chan struct{} { return c.done }

// Disconnect also flushes requests that wait for a masked atomic.
func (c *conn) Disconnect() error {
	err := c.ID.Disconnect()
	c.q.flush()
	return err
}

// CloseContext closes the connection. When it returns, the QP's completions are in the CQs.
func (c *conn) CloseContext(ctx context.Context) error {
	err := c.ID.CloseContext(ctx)
	<-c.done
	return err
}

// Listen implements cm.Provider. Datagrams are left to the inner device.
func (d *device) Listen(ctx context.Context, address string, cfg cm.Config) (cm.ProviderListener, error) {
	ln, err := forward.Listen(ctx, address, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.PortSpace == cm.PortSpaceUDP {
		return ln, nil
	}
	return &listener{ln}, nil
}

// listener is cm.ProviderListener.
type listener struct{ *forward.Listener }

func (l *listener) Accept(ctx context.Context) (cm.ProviderRequest, error) {
	r, err := l.Next(ctx)
	if err != nil {
		return nil, err
	}
	return &request{r, engine.Delivered(r.PrivateData())}, nil
}

// request is cm.ProviderRequest.
type request struct {
	*forward.Request
	private []byte
}

func (r *request) PrivateData() []byte { return r.private }

func (r *request) Accept(ctx context.Context, handle *verbs.QP, param cm.ConnParam) (cm.ProviderConn, error) {
	q, err := verbs.Own[*qp](handle.Provider())
	if err != nil {
		return nil, err
	}
	if err := engine.CheckPrivate(param.PrivateData); err != nil {
		return nil, r.end(err)
	}
	c, err := r.Join(ctx, handle, param)
	if err != nil {
		return nil, err
	}
	return newConn(c.ID, q, r.private), nil
}

func (r *request) Reject(data []byte) error {
	if err := engine.CheckPrivate(data); err != nil {
		return r.end(err)
	}
	return r.Request.Reject(data)
}

// end rejects the request and returns the reason.
func (r *request) end(reason error) error {
	_ = r.Request.Reject(nil) // the peer may have given up
	return reason
}
